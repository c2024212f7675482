// What a run left behind: artifacts, outputs, metrics with their curves, parameters.
import { api, el, named, size, words } from "./common.js";
import { curve } from "./curve.js";

const MANY = 12;
const LONG = 240;
const MOST_POINTS = 100_000;
const by = (id) => document.getElementById(id);
const open = new Map();         // what was opened or closed by hand, kept when it is drawn anew
const series = new Map();       // task and name -> its points so far
let loaded = 0;
let after = 0;
let loading = false;

export const number = (value) => String(Number(value.toPrecision(6)));
const shown = (value) => typeof value === "number" ? number(value) : typeof value === "string" ? value : JSON.stringify(value);

export function drawResults(run) {
  drawn("artifacts", run.artifacts, () => [el("ul", {}, ...pictures(run.artifacts).map((item) => artifact(run.id, item)))]);
  const outputs = Object.entries(run.outputs).flatMap(
    ([task, values]) => Object.entries(values).map(([name, value]) => ({ task, name, value })));
  drawn("outputs", outputs, () => grouped("outputs", outputs, words.all_outputs));
  const single = run.metrics.filter((m) => !(m.points > 1));
  drawn("metrics", run.metrics, () => [
    ...curves(run.metrics.filter((m) => m.points > 1)), ...grouped("metrics", single, words.all_metrics)]);
  drawn("params", Object.entries(run.params), (rows) => [table(rows.map(([name, value]) => ({ name, value })))]);
  loadPoints(run);
}

// Fills the section's `.content`, only when what it shows has changed: what is open or has the focus stays so.
function drawn(id, data, make) {
  const section = by(id);
  const key = JSON.stringify(data);
  if (section.dataset.key === key) return;
  section.dataset.key = key;
  section.hidden = data.length === 0;
  section.querySelector(".content").replaceChildren(...make(data));
}

function grouped(kind, rows, label) {
  const tasks = new Map();
  for (const row of rows) tasks.set(row.task, [...(tasks.get(row.task) || []), row]);
  return [...tasks].map(([task, mine]) => {
    const box = el("details", { class: "group" },
      el("summary", {}, named(task), " ", el("span", { class: "quiet small" }, label.replace("{count}", mine.length))), table(mine));
    const key = kind + " " + task;
    box.open = open.has(key) ? open.get(key) : rows.length <= MANY;
    box.querySelector("summary").addEventListener("click", () => open.set(key, !box.open));
    return box;
  });
}

const table = (rows) => el("table", {}, el("tbody", {}, ...rows.map((row) =>
  el("tr", {}, el("th", { scope: "row" }, named(row.name)), el("td", {}, value(shown(row.value ?? null)))))));

function value(text) {
  if (text.length <= LONG) return el("div", { class: "value" }, text);
  const box = el("div", { class: "value clipped" }, text);
  const button = el("button", { class: "plain small", "aria-expanded": "false" }, words.show_more);
  button.addEventListener("click", () => {
    const whole = !box.classList.toggle("clipped");
    button.textContent = whole ? words.show_less : words.show_more;
    button.setAttribute("aria-expanded", String(whole));
  });
  return el("div", {}, box, button);
}

const isPicture = (item) => /^image\/(png|jpeg|gif|webp)$/.test(item.media_type || "");
const isShown = (item) => isPicture(item) || /^(text\/(plain|csv)|application\/json)\b/.test(item.media_type || "");
const pictures = (items) => [...items.filter(isPicture), ...items.filter((item) => !isPicture(item))];

function artifact(runId, item) {
  const href = "/api/v1/run/" + runId + "/artifact/" + encodeURIComponent(item.task) + "/" + encodeURIComponent(item.name);
  const link = isShown(item) ? { href, target: "_blank", rel: "noopener" } : { href };
  return el("li", {},
    named(item.name, "a", link), " ", el("span", { class: "quiet small" }, item.task + " · " + size(item.size)),
    isPicture(item) ? el("a", link, el("img", { src: href, alt: item.name, loading: "lazy" })) : null);
}

// --- curves ---

const keyOf = (metric) => metric.task + "\n" + metric.name;

function curves(metrics) {
  if (metrics.length === 0) return [];
  return [el("ul", { class: "curves" }, ...metrics.map((metric) => {
    const item = el("li", {},
      el("div", { class: "head" }, named(metric.name), el("strong", {}, metric.value === null ? "–" : number(metric.value))),
      el("div", { class: "quiet small" }, metric.task + " · " + words.steps.replace("{count}", metric.points)), el("div", { class: "plot" }));
    item.dataset.metric = keyOf(metric);
    plot(item);
    return item;
  }))];
}

function plot(item) {
  const points = series.get(item.dataset.metric);
  if (points) item.querySelector(".plot").replaceChildren(...curve(points, number, item.dataset.metric.split("\n")[1]));
}

async function loadPoints(run) {
  const there = run.metrics.some((m) => m.points > 1) ? run.metrics.reduce((sum, m) => sum + (m.points || 0), 0) : 0;
  if (loading || there <= loaded || loaded >= MOST_POINTS) return;
  loading = true;
  try {
    let got = [null];
    while (got.length > 0 && loaded < Math.min(there, MOST_POINTS)) {
      got = (await api("/run/" + run.id + "/metric/?" + new URLSearchParams({ after, limit: 10_000 }))).result;
      for (const point of got) {
        const key = keyOf(point);
        if (!series.has(key)) series.set(key, []);
        series.get(key).push([point.step, point.value]);
        after = point.id;
      }
      loaded += got.length;
    }
    for (const item of document.querySelectorAll("[data-metric]")) plot(item);
  } catch {
    // the values are on the page; the curves come with the next look
  }
  loading = false;
}
