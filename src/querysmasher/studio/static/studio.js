// What htmx and forms cannot do alone: say that the server is gone, and move between chips by arrow keys.
"use strict";
const warn = (text) => {
  const said = document.getElementById("said");
  said.classList.add("gone");
  said.textContent = text;
};
document.addEventListener("htmx:sendError", () => {
  warn("Studio no longer answers. What you changed is saved; run the command again to go on.");
});
document.addEventListener("htmx:responseError", (event) => {
  warn(`Studio could not do this (${event.detail.xhr.status}). What you changed before is saved; load the page again.`);
});
document.addEventListener("DOMContentLoaded", () => { document.documentElement.dataset.ready = "yes"; });
