// What htmx and forms cannot do alone: say that the server is gone, keep what is typed meanwhile, and the focus.
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
// A change says which setting its form has shown: another page may have changed the file since.
document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.verb !== "get") detail.parameters.seen = detail.elt.closest("[data-seen]").dataset.seen;
});
// What a person types while an answer is on its way stays, unless the answer changes that very field.
let typed = [];
document.addEventListener("htmx:beforeSwap", (event) => {
  const sent = event.detail.requestConfig.formData;
  typed = [...document.querySelectorAll("main :is(input:not([type]), input[type=search], textarea)")]
    .map((it) => ({ it, before: it.defaultValue, sent: sent.has(it.name) ? sent.get(it.name) : it.defaultValue }))
    .filter(({ it, sent }) => it.value !== sent);
});
document.addEventListener("htmx:afterSettle", () => {
  for (const { it, before, sent } of typed.splice(0)) {
    const now = it.id && document.getElementById(it.id);
    if (now && now !== it && [before, sent].includes(now.defaultValue)) {
      now.value = it.value;
      now.dispatchEvent(new Event("input", { bubbles: true }));
    }
  }
});
// The focus stays where it was, or goes to what is wrong, or to the beginning of another page.
let [path, focused] = [location.pathname, null];
const kind = (it) => [it.tagName, it.id, it.name, it.value].join("|");
const name = (it) => it.ariaLabel || it.textContent;
document.addEventListener("htmx:beforeSwap", () => { focused = document.activeElement; });
document.addEventListener("htmx:afterSettle", (event) => {
  const main = document.getElementById("main");
  const wrong = event.detail.xhr?.status === 422 && main.querySelector("[aria-invalid], [role=alert]");
  if (location.pathname === path && !wrong && focused?.isConnected) return;
  const alike = [...document.querySelectorAll("a, button, input, select, textarea, summary")]
    .filter((it) => focused && kind(it) === kind(focused));
  const same = location.pathname === path && (alike.find((it) => name(it) === name(focused)) || alike[0]);
  if (location.pathname !== path) scrollTo({ top: 0, behavior: "instant" });
  path = location.pathname;
  (wrong || same || main).focus({ preventScroll: !wrong });
});
document.addEventListener("DOMContentLoaded", () => { document.documentElement.dataset.ready = "yes"; });
