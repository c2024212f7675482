// The log of one attempt of one rank of a task, followed while it grows.
import { api, el, show, told, words } from "./common.js";

const TAIL = 256 * 1024;
const KEPT = 2 * 1024 * 1024;
const by = (id) => document.getElementById(id);
const runId = by("run").dataset.run;
let log = null;          // {task, attempt, rank, offset, timer}
let tasks = [];

export function openLog(task, attempt = null, rank = 0) {
  closeLog();
  log = { task, attempt, rank, offset: -TAIL, timer: 0 };
  by("log").hidden = false;
  by("log-title").textContent = words.log_of.replace("{task}", task);
  by("log-text").textContent = "";
  drawLogHead(tasks);
  read(log);
}

function closeLog() {
  if (log) clearTimeout(log.timer);
  log = null;
  by("log").hidden = true;
}

export const attemptTold = (attempt) => "#" + attempt.no + " " + (words[attempt.phase] || attempt.phase)
  + (attempt.phase !== "succeeded" && attempt.message ? ": " + told(attempt.message) : "");

export function drawLogHead(newTasks) {
  tasks = newTasks;
  if (!log) return;
  const task = tasks.find((t) => t.key === log.task);
  const attempts = task ? task.attempts : [];
  const chosen = attempts.find((a) => a.no === log.attempt) || attempts[attempts.length - 1];
  options(by("log-attempt"), attempts.map((a) => [a.no, attemptTold(a)]), chosen ? chosen.no : "");
  options(by("log-rank"), (chosen ? chosen.ranks : []).map((r) => [r.rank, rankTold(r)]), log.rank);
}

const rankTold = (rank) => [words.rank.replace("{rank}", rank.rank), rank.role && rank.role + " " + rank.index,
  words[rank.state] || rank.state].filter(Boolean).join(" · ");

function options(choice, pairs, value) {
  const key = JSON.stringify(pairs);
  choice.hidden = pairs.length < 2;
  if (choice.dataset.key !== key) {
    choice.dataset.key = key;
    choice.replaceChildren(...pairs.map(([number, text]) => el("option", { value: number, title: text }, text.length > 70 ? text.slice(0, 69) + "…" : text)));
  }
  choice.value = String(value);
}

async function read(mine) {
  let pause = 1000;
  try {
    const query = new URLSearchParams({ offset: mine.offset, limit: TAIL, rank: mine.rank });
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
  mine.timer = setTimeout(() => read(mine), pause);
}

// Colours and other escape sequences are left out; a lone carriage return (a progress bar) begins the line anew.
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])/g;
const plain = (text) => text.replace(ESCAPES, "").replace(/\r\n/g, "\n").replace(/[^\n]*\r(?!$)/g, "");

function append(box, text) {
  box.append(plain(text));
  if (box.textContent.length > KEPT) box.textContent = words.log_cut + "\n" + box.textContent.slice(-KEPT / 2);
  if (by("follow").checked) box.scrollTop = box.scrollHeight;
}

by("log-close").addEventListener("click", closeLog);
by("log-attempt").addEventListener("change", () => openLog(log.task, Number(by("log-attempt").value)));
by("log-rank").addEventListener("change", () => openLog(log.task, log.attempt, Number(by("log-rank").value)));
