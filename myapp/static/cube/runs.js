// The list of runs: asked for again every few seconds while the page is looked at.
import { api, duration, el, live, moment, phase, show } from "./common.js";

const FAST_MS = 2000;
const SLOW_MS = 8000;
const table = document.getElementById("runs");
const body = table.tBodies[0];
const place = new URLSearchParams(location.search);
let wanted = place.get("phase") || "";
let before = place.get("before") || "";
let timer = 0;
let asked = 0;

const by = (id) => document.getElementById(id);

function row(run) {
  const link = el("a", { href: "/run/" + run.id }, String(run.id));
  const name = el("a", { href: "/run/" + run.id }, run.name);
  const cell = (content, tight = false) => el("td", tight ? { class: "tight" } : {}, content);
  const facts = el("tr", {},
    cell(link, true), cell(name), cell(run.project), cell(phase(run.phase), true), cell(moment(run.submitted_at), true),
    cell(duration(run.started_at, run.finished_at), true), cell(run.created_by || "–"));
  if (!run.reason || run.phase === "succeeded") return [facts];
  const why = el("div", { class: "brief", title: run.reason }, run.reason);
  return [facts, el("tr", { class: "told" }, el("td"), el("td", { colspan: 6 }, why))];
}

function draw(page) {
  const rows = page.result;
  by("loading").hidden = true;
  table.hidden = rows.length === 0;
  by("empty").hidden = rows.length > 0 || wanted !== "" || before !== "";
  by("nothing").hidden = rows.length > 0 || (wanted === "" && before === "");
  body.replaceChildren(...rows.flatMap(row));
  by("newest").hidden = before === "";
  by("older").hidden = !page.next;
  by("older").onclick = () => go(wanted, String(page.next));
  for (const button of by("filters").children) {
    button.setAttribute("aria-pressed", String(button.dataset.phase === wanted));
  }
}

async function load() {
  clearTimeout(timer);
  const mine = ++asked;
  let pause = SLOW_MS;
  try {
    const query = new URLSearchParams({ page_size: "50" });
    if (wanted) query.set("phase", wanted);
    if (before) query.set("before", before);
    const page = await api("/run/?" + query);
    if (mine !== asked) return;
    draw(page);
    show(null);
    live(true);
    if (page.result.some((run) => run.phase === "running" || run.phase === "queued")) pause = FAST_MS;
  } catch (error) {
    if (mine !== asked) return;
    if (error.status) show(error);
    live(false);
  }
  if (!document.hidden) timer = setTimeout(load, pause);
}

function go(newPhase, newBefore) {
  wanted = newPhase;
  before = newBefore;
  const query = new URLSearchParams();
  if (wanted) query.set("phase", wanted);
  if (before) query.set("before", before);
  history.replaceState(null, "", "/" + (query.size ? "?" + query : ""));
  load();
}

by("filters").addEventListener("click", (event) => {
  if (event.target.dataset.phase !== undefined) go(event.target.dataset.phase, "");
});
by("show-all").addEventListener("click", () => go("", ""));
by("newest").addEventListener("click", () => go(wanted, ""));
document.addEventListener("visibilitychange", () => { if (!document.hidden) load(); });
load();
