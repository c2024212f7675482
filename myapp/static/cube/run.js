// One run: drawn from GET /run/<id>, asked for again whenever its event stream says that something happened.
import { api, duration, el, live, moment, phase, show, size, words } from "./common.js";

const ENDED = new Set(["succeeded", "failed", "stopped"]);
const TASK_ENDED = new Set([...ENDED, "skipped"]);
const GATHER_MS = 250;
const LOG_TAIL = 256 * 1024;
const LOG_KEPT = 2 * 1024 * 1024;
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
  by("facts").replaceChildren(
    run.project, " · ", moment(run.submitted_at), " · ", duration(run.started_at, run.finished_at), " · ", run.created_by || "–");
  const why = run.reason || (ENDED.has(run.phase) ? "" : run.waiting) || "";
  by("reason").hidden = why === "" || run.phase === "succeeded";
  by("reason").textContent = why;
  by("reason").classList.toggle("waiting", run.phase !== "failed");
  const ended = ENDED.has(run.phase);
  by("cancel").hidden = ended;
  by("cancel").disabled = run.desired === "stop";
  by("cancel").textContent = run.desired === "stop" ? words.cancelling : words.cancel;
  by("retry").hidden = !ended || run.phase === "succeeded";
  by("again").hidden = !ended;
  by("tasks").tBodies[0].replaceChildren(...run.tasks.map(taskRow));
  drawResults();
  drawLogHead();
}

function taskRow(task) {
  const last = task.attempts[task.attempts.length - 1];
  const diagnosis = last && last.diagnosis;
  const advice = (diagnosis && diagnosis.resolution) || "";
  const said = task.reason.includes(advice.replace(/\.$/, "")) ? "" : advice;
  const why = TASK_ENDED.has(task.phase) && task.phase !== "succeeded"
    ? [task.reason, said].filter(Boolean).join("\n") : task.waiting || "";
  const log = el("button", {}, words.log);
  log.disabled = task.attempts.length === 0 && task.carried_from === null;
  log.addEventListener("click", () => openLog(task.key));
  const tight = (content) => el("td", { class: "tight" }, content);
  return el("tr", {},
    el("td", {}, task.title || task.key, task.title && task.title !== task.key ? el("div", { class: "key" }, task.key) : null), tight(phase(task.phase)), tight(duration(task.started_at, task.finished_at)),
    tight(String(task.attempts.length || "–")), el("td", {}, el("div", { class: "why" }, why)), tight(log));
}

const shown = (value) => typeof value === "number" ? String(Number(value.toPrecision(6)))
  : typeof value === "string" ? value : JSON.stringify(value);

function drawResults() {
  const table = (id, rows) => {
    by(id).hidden = rows.length === 0;
    by(id).querySelector("tbody").replaceChildren(...rows.map((cells) => el("tr", {}, ...cells.map((c) => el("td", {}, c)))));
  };
  table("metrics", run.metrics.map((m) => [m.task, m.name, shown(m.value)]));
  table("outputs", Object.entries(run.outputs).flatMap(
    ([task, values]) => Object.entries(values).map(([name, value]) => [task, name, shown(value)])));
  table("params", Object.entries(run.params).map(([name, value]) => [name, shown(value)]));
  const key = JSON.stringify(run.artifacts);
  const list = by("artifacts").querySelector("ul");
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  by("artifacts").hidden = run.artifacts.length === 0;
  list.replaceChildren(...run.artifacts.map(artifact));
}

function artifact(item) {
  const url = "/api/v1/run/" + runId + "/artifact/" + encodeURIComponent(item.task) + "/" + encodeURIComponent(item.name);
  const picture = /^image\/(png|jpeg|gif|webp)$/.test(item.media_type || "");
  const image = picture ? el("a", { href: url }, el("img", { src: url, alt: item.name, loading: "lazy" })) : null;
  return el("li", {},
    el("a", { href: url }, item.name), " ", el("span", { class: "quiet small" }, item.task + " · " + size(item.size)), image);
}

// --- the log ---

let log = null;          // {task, attempt, offset, timer}

function openLog(task) {
  closeLog();
  log = { task, attempt: null, offset: -LOG_TAIL, timer: 0 };
  by("log").hidden = false;
  by("log-title").textContent = words.log_of.replace("{task}", task);
  by("log-text").textContent = "";
  drawLogHead();
  readLog(log);
  by("log").scrollIntoView({ block: "nearest" });
}

function closeLog() {
  if (log) clearTimeout(log.timer);
  log = null;
  by("log").hidden = true;
}

function drawLogHead() {
  if (!log || !run) return;
  const task = run.tasks.find((t) => t.key === log.task);
  const attempts = task ? task.attempts : [];
  const choice = by("log-attempt");
  choice.hidden = attempts.length < 2;
  if (choice.options.length !== attempts.length) {
    choice.replaceChildren(...attempts.map((a) => el("option", { value: a.no }, "#" + a.no + " " + (words[a.phase] || a.phase))));
    choice.value = log.attempt || (attempts.length && attempts[attempts.length - 1].no);
  }
}

async function readLog(mine) {
  let pause = 1000;
  try {
    const query = new URLSearchParams({ offset: mine.offset, limit: LOG_TAIL });
    if (mine.attempt) query.set("attempt", mine.attempt);
    const piece = (await api("/run/" + runId + "/task/" + encodeURIComponent(mine.task) + "/log?" + query)).result;
    if (mine !== log) return;
    const box = by("log-text");
    if (mine.offset < 0 && piece.offset > 0) box.textContent = words.log_cut + "\n";
    const more = piece.next_offset > piece.offset;
    mine.offset = piece.next_offset;
    if (more) append(box, piece.text);
    if (piece.eof) {
      if (box.textContent === "") box.textContent = words.log_empty;
      return;
    }
    if (more) pause = 50;
  } catch (error) {
    if (mine !== log) return;
    show(error);
    pause = 5000;
  }
  mine.timer = setTimeout(() => readLog(mine), pause);
}

// Colours and other escape sequences are left out; a lone carriage return (a progress bar) begins the line anew.
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])/g;
const plain = (text) => text.replace(ESCAPES, "").replace(/\r\n/g, "\n").replace(/[^\n]*\r(?!$)/g, "");

function append(box, text) {
  box.append(plain(text));
  if (box.textContent.length > LOG_KEPT) box.textContent = words.log_cut + "\n" + box.textContent.slice(-LOG_KEPT / 2);
  if (by("follow").checked) box.scrollTop = box.scrollHeight;
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
by("log-close").addEventListener("click", closeLog);
by("log-attempt").addEventListener("change", () => {
  const task = log.task;
  openLog(task);
  clearTimeout(log.timer);
  log = { ...log, attempt: Number(by("log-attempt").value), offset: -LOG_TAIL };
  readLog(log);
});
setInterval(() => { if (run && !ENDED.has(run.phase) && !document.hidden) draw(); }, 1000);
load().then(follow);
