// What readers take with them: tables and charts as files, and links to what they chose.

function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A chart as an SVG that stands alone: the page's colours are written out.
async function picture(id) {
  const style = getComputedStyle(document.documentElement);
  const drawn = (await views[id].view.toSVG()).replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
  const paper = style.getPropertyValue("--paper").trim();
  return new Blob([drawn.replace(/(<svg[^>]*>)/, `$1<rect width="100%" height="100%" fill="${paper}"/>`)], { type: "image/svg+xml" });
}

// The same as a PNG, at twice the size.
async function painted(svgBlob) {
  const image = new Image();
  const url = URL.createObjectURL(svgBlob);
  await new Promise((resolve, reject) => { image.onload = resolve; image.onerror = reject; image.src = url; });
  const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

// Rows as the text of a CSV file. Numbers stay numbers; no text becomes a formula.
function csv(rows) {
  const quote = (text) => `"${text.replace(/^(?=\s*[=+\-@＝＋－＠]|[\t\r\n])/, "'").replaceAll('"', '""')}"`;
  const cell = (value) => (typeof value === "number" ? value : quote(String(value ?? "")));
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

// The cells of a table of the page as it stands.
function written(table) {
  const plain = (text) => (/^[\d,]*\.?\d+$/.test(text) ? Number(text.replaceAll(",", "")) : text);
  return [...table.rows].map((row) => [...row.cells].map((cell) =>
    (cell.matches("td.n") ? plain(cell.textContent) : cell.textContent)));
}

// The name of a file: words in lower case, joined by dashes.
function fileName(words) {
  const name = words.normalize("NFKC").toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
  return [...name].slice(0, 80).join("") || "table";
}

// The headings under which an element of the page stands, as the name of a file.
function titleOf(element) {
  const over = [...element.closest("section").querySelectorAll("h2, h3")]
    .filter((title) => title.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING);
  return fileName(over[0].textContent + (over.length > 1 ? ` ${over[over.length - 1].textContent}` : ""));
}

function saver(text, work) {
  const button = make("button", { type: "button" }, text);
  button.addEventListener("click", work);
  return button;
}

// Offers a table as a file, under it: its rows by `rows`, or as they stand.
function offerTable(table, rows = () => written(table)) {
  const button = saver("Table as CSV", () => save(new Blob([csv(rows())], { type: "text/csv" }), `${titleOf(table)}.csv`));
  table.closest(".scroll").after(make("div", { class: "save" }, button));
}

function offerChart(id) {
  byId(id).closest("figure").append(make("div", { class: "save" },
    saver("Chart as SVG", async () => save(await picture(id), `${titleOf(byId(id))}.svg`)),
    saver("Chart as PNG", async () => save(await painted(await picture(id)), `${titleOf(byId(id))}.png`))));
}

// What is chosen, in the address: a link to it opens the same.
function remember(section, chosen) {
  const words = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value !== ""));
  history.replaceState(null, "", `#${section}?${words}`);
}

// What a link to this section has chosen, or null.
function recalled(section) {
  const [where, words] = location.hash.split("?");
  return where === `#${section}` && words ? new URLSearchParams(words) : null;
}
