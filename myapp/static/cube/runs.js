// The list of runs: asked for again every few seconds while the page is looked at.
import { api, clock, duration, el, live, mark, moment, named, phase, show, tick, told, words } from "./common.js";

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
  const address = "/run/" + run.id;
  const cell = (part, ...content) => el("td", { class: part }, ...content);
  const name = [named(run.name, "a", { href: address })];
  if (run.kind === "job") name.push(" ", mark(words.job));
  if (run.schedule_id) name.push(" ", mark(words.schedule, clock(run.scheduled_at), "narrow"));
  const by = run.schedule_id
    ? [mark(words.schedule), " ", el("span", { class: "quiet small tight" }, clock(run.scheduled_at))] : [run.created_by || "–"];
  const facts = el("tr", {},
    cell("at-run tight", el("a", { href: address }, String(run.id))), cell("at-name", ...name), cell("at-project", named(run.project)),
    cell("at-phase tight", phase(run.phase)), cell("at-time tight", moment(run.submitted_at)),
    cell("at-duration tight", duration(run.started_at, run.finished_at)), cell("at-by", ...by));
  if (!run.reason || run.phase === "succeeded") return [facts];
  const why = el("div", { class: "brief", title: run.reason }, told(run.reason));
  return [facts, el("tr", { class: "told" }, el("td"), el("td", { colspan: 6 }, why))];
}

function draw(page) {
  const rows = page.result;
  by("loading").hidden = true;
  table.hidden = rows.length === 0;
  by("empty").hidden = rows.length > 0 || wanted !== "" || before !== "";
  by("nothing").hidden = rows.length > 0 || (wanted === "" && before === "");
  const key = JSON.stringify(rows);
  if (body.dataset.key !== key) {  // else what has the focus would lose it
    body.dataset.key = key;
    body.replaceChildren(...rows.flatMap(row));
  }
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
setInterval(tick, 1000);
load();
