// One run: drawn from GET /run/<id>, asked for again whenever its event stream says that something happened.
import { api, clock, duration, el, live, mark, moment, named, phase, show, tick, told, words } from "./common.js";
import { attemptTold, drawLogHead, openLog } from "./log.js";
import { drawResults } from "./results.js";

const ENDED = new Set(["succeeded", "failed", "stopped"]);
const TASK_ENDED = new Set([...ENDED, "skipped"]);
const GATHER_MS = 250;
const FEW_ATTEMPTS = 3;
const by = (id) => document.getElementById(id);
const page = by("run");
const runId = page.dataset.run;
let run = null;
let stream = null;
let pending = 0;
let loading = false;
let again = false;

async function load() {
  if (loading) { again = true; return; }
  loading = true;
  try {
    run = (await api("/run/" + runId)).result;
    draw();
    show(null);
  } catch (error) {
    by("loading").hidden = true;
    show(error);
  }
  loading = false;
  if (again) { again = false; soon(); }
}

function soon() {
  if (!pending) pending = setTimeout(() => { pending = 0; load(); }, GATHER_MS);
}

function follow() {
  if (!run || ENDED.has(run.phase)) { live(null); return; }
  stream = new EventSource("/api/v1/run/" + runId + "/events?after=" + run.event_seq);
  stream.onopen = () => live(true);
  stream.addEventListener("transition", soon);
  stream.addEventListener("end", () => { stream.close(); live(null); soon(); });
  stream.onerror = () => {
    live(false);
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => { load().then(follow); }, 5000);
  };
}

function draw() {
  by("loading").hidden = true;
  page.hidden = false;
  document.title = run.name + " #" + run.id + " · Cube Studio";
  by("name").textContent = run.name;
  by("phase").replaceChildren(phase(run.phase));
  by("kind").replaceChildren(...(run.kind === "job" ? [mark(words.job)] : []));
  const who = run.schedule_id
    ? [mark(words.schedule), " ", words.scheduled_for.replace("{time}", clock(run.scheduled_at))] : [run.created_by || "–"];
  by("facts").replaceChildren(
    run.project, " · ", moment(run.submitted_at), " · ", duration(run.started_at, run.finished_at), " · ", ...who);
  const why = run.reason || (ENDED.has(run.phase) ? "" : run.waiting) || "";
  by("reason").hidden = why === "" || run.phase === "succeeded";
  by("reason").textContent = told(why);
  by("reason").classList.toggle("waiting", run.phase !== "failed");
  const ended = ENDED.has(run.phase);
  by("cancel").hidden = ended;
  by("cancel").disabled = run.desired === "stop";
  by("cancel").textContent = run.desired === "stop" ? words.cancelling : words.cancel;
  by("retry").hidden = !ended || run.phase === "succeeded";
  by("again").hidden = !ended;
  drawTasks();
  drawLogHead(run.tasks);
  drawResults(run);
}

const rows = new Map();  // key of a task -> {is, row}: only rows that changed are drawn anew, so that the focus stays

function drawTasks() {
  const body = by("tasks").tBodies[0];
  run.tasks.forEach((task, index) => {
    const is = JSON.stringify(task);
    const old = rows.get(task.key);
    if (old && old.is === is) return;
    const row = taskRow(task, old && old.row.querySelector("details"));
    rows.set(task.key, { is, row });
    if (old) old.row.replaceWith(row);
    else body.insertBefore(row, body.rows[index] || null);
  });
}

function taskRow(task, wasShown) {
  const last = task.attempts[task.attempts.length - 1];
  const diagnosis = last && last.diagnosis;
  const advice = (diagnosis && diagnosis.resolution) || "";
  const said = task.reason.includes(advice.replace(/\.$/, "")) ? "" : advice;
  const why = TASK_ENDED.has(task.phase) && task.phase !== "succeeded"
    ? [task.reason, said].filter(Boolean).join("\n") : task.waiting || "";
  const log = el("button", {}, words.log);
  log.disabled = task.attempts.length === 0 && task.carried_from === null;
  log.addEventListener("click", () => { openLog(task.key); by("log").scrollIntoView({ block: "nearest" }); });
  const tight = (content) => el("td", { class: "tight" }, content);
  const key = task.title && task.title !== task.key ? el("div", { class: "key" }, named(task.key)) : null;
  const ranks = last && last.ranks.length > 1
    ? el("div", { class: "quiet small tight" }, words.ranks.replace("{count}", last.ranks.length)) : null;
  return el("tr", {},
    el("td", {}, named(task.title || task.key), key, ranks),
    tight(phase(task.phase)), tight(duration(task.started_at, task.finished_at)), tight(String(task.attempts.length || "–")),
    el("td", { class: "wide" }, ...(why ? [el("div", { class: "why" }, told(why))] : []), ...attemptList(task, wasShown)), tight(log));
}

function attemptList(task, wasShown) {
  const attempts = task.attempts;
  if (attempts.length < 2) return [];
  const list = el("details", { class: "attempts small" }, el("summary", {}, words.attempts + ": " + attempts.length),
    el("ul", {}, ...attempts.map((a) => el("li", {}, attemptTold(a)))));
  list.open = wasShown ? wasShown.open : attempts.length <= FEW_ATTEMPTS;
  return [list];
}

// --- the buttons ---

async function act(button, work) {
  button.disabled = true;
  try { await work(); } catch (error) { show(error); }
  button.disabled = false;
}

by("cancel").addEventListener("click", () => {
  if (confirm(words.cancel_sure)) act(by("cancel"), async () => { await api("/run/" + runId + "/cancel", "POST", {}); await load(); });
});
for (const [id, mode] of [["retry", "failed"], ["again", "all"]]) {
  by(id).addEventListener("click", () => act(by(id), async () => {
    location.href = "/run/" + (await api("/run/" + runId + "/retry", "POST", { mode })).id;
  }));
}
setInterval(() => { if (run && !document.hidden) tick(); }, 1000);
load().then(follow);
