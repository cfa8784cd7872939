"use strict";
// Hand-written: hover values, switching runs, tables on a phone, and the live view. Numbers come from the table below each figure.
const hidden = new Set();

function start() {
  document.querySelectorAll("input[data-toggle]").forEach((box) => {
    box.checked = !hidden.has(box.dataset.toggle);
    box.addEventListener("change", () => { box.checked ? hidden.delete(box.dataset.toggle) : hidden.add(box.dataset.toggle); show(); });
  });
  document.querySelectorAll(".card").forEach(listen);
  document.querySelectorAll("table").forEach(name);
  show();
}

// On a phone a row of many columns is shown as lines, each with the name of its column.
function name(table) {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
  if (heads.length < 4) return;
  table.classList.add("stacked");
  table.querySelectorAll("tbody tr").forEach((row) => [...row.cells].forEach((cell, i) => { cell.dataset.name = heads[i]; }));
}

function show() {
  document.querySelectorAll("[data-run]").forEach((mark) => mark.classList.toggle("off", hidden.has(mark.dataset.run)));
}

function listen(card) {
  const svg = card.querySelector("svg.figure"), said = card.querySelector(".readout");
  if (!svg || !said) return;
  const named = (event) => { const title = event.target.querySelector(":scope > title"); if (title) said.textContent = title.textContent; };
  svg.addEventListener("pointerover", named);
  svg.addEventListener("focusin", named);
  if (!svg.dataset.x) return;
  let row = -1;
  const rows = [...card.querySelectorAll("tbody tr")];
  const epochs = rows.map((line) => Number(line.cells[0].textContent));
  const [low, high, left, right] = svg.dataset.x.split(",").map(Number);
  const go = (next) => { row = Math.min(Math.max(next, 0), rows.length - 1); tell(card, svg, said, rows[row], left + (epochs[row] - low) / (high - low) * (right - left)); };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = low + ((event.clientX - box.left) / box.width * svg.viewBox.baseVal.width - left) / (right - left) * (high - low);
    go(epochs.reduce((best, epoch, i) => (Math.abs(epoch - at) < Math.abs(epochs[best] - at) ? i : best), 0));
  });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: row - 1, ArrowRight: row + 1, Home: 0, End: rows.length - 1 }[event.key];
    if (step !== undefined) { go(step); event.preventDefault(); }
  });
  svg.addEventListener("pointerleave", () => svg.querySelector(".cursor").classList.add("off"));
}

function tell(card, svg, said, line, x) {
  const cursor = svg.querySelector(".cursor");
  cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.classList.remove("off");
  const heads = card.querySelectorAll("thead th");
  const parts = [];
  for (let i = 1; i < line.cells.length; i++) {
    if (!hidden.has(heads[i].dataset.of) && line.cells[i].textContent !== "–") parts.push(`${heads[i].textContent} ${line.cells[i].textContent}`);
  }
  const more = parts.length > 12 ? ` · and ${parts.length - 12} more` : "";
  said.textContent = `${heads[0].textContent} ${line.cells[0].textContent}: ${parts.slice(0, 12).join(" · ")}${more}`;
}

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.text();
}

async function follow(stamp) {
  try {
    const now = await ask("stamp");
    if (stamp !== undefined && now !== stamp) {
      const page = new DOMParser().parseFromString(await ask("./"), "text/html");
      document.title = page.title;
      const open = [...document.querySelectorAll("details")].map((box) => box.open);
      for (const part of ["header", "main"]) document.querySelector(part).replaceWith(page.querySelector(part));
      document.querySelectorAll("details").forEach((box, i) => { box.open = Boolean(open[i]); });
      start();
    }
    stamp = now;
    document.documentElement.dataset.state = "live";
  } catch { document.documentElement.dataset.state = "lost"; }
  setTimeout(() => follow(stamp), 2000);
}

start();
if (document.documentElement.dataset.watch) follow();
