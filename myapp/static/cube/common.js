// What both pages share: words, the API, time, and small pieces of the page. Text goes in as text, never as markup.
export const words = JSON.parse(document.getElementById("words").textContent);
export const lang = document.documentElement.lang;
const token = document.querySelector("meta[name=csrf-token]").content;

export class ApiError extends Error {
  constructor(status, body) {
    super(body.message || String(status));
    this.status = status;
    this.resolution = body.resolution;
  }
}

export async function api(path, method = "GET", body = undefined) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-CSRFToken"] = token;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const reply = await fetch("/api/v1" + path, {
    method, headers, credentials: "same-origin", body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (reply.status === 401) {
    location.href = "/login/?next=" + encodeURIComponent(location.pathname);
    throw new ApiError(401, {});
  }
  const data = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new ApiError(reply.status, data);
  return data;
}

export function show(error) {
  const box = document.getElementById("problem");
  box.hidden = !error;
  box.textContent = error ? [error.message, error.resolution].filter(Boolean).join(" — ") : "";
}

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

export const phase = (name) => el("span", { class: "phase " + name }, words[name] || name);

const REASONS = JSON.parse(document.getElementById("reasons").textContent).map(([text, shown]) => [new RegExp("^" + text + "$"), shown]);

// A reason ("task: what happened. What to do") in the page's language, where its sentences are known.
export function told(text) {
  return (text || "").split("\n").map((line) => {
    const [, before, rest] = line.match(/^([a-z][a-z0-9_-]*: )?(.*)$/);
    return known(line) || (before || "") + sentences(rest);
  }).join("\n");
}

const sentences = (text) => text.split(". ").map((part) => known(part) || part).join(". ");

function known(text) {
  const bare = text.replace(/\.$/, "");
  const found = REASONS.find(([pattern]) => pattern.test(bare));
  return found && bare.replace(found[0], found[1]);
}

// A name: an ordinary one stays whole, only an endless one is broken anywhere.
export function named(text, tag = "span", attributes = {}) {
  const longest = Math.max(...text.split(/\s+/).map((word) => word.length));
  return el(tag, { ...attributes, class: text.length <= 28 ? "whole" : longest > 28 ? "endless" : null }, text);
}

export const mark = (text, title, extra = "") => el("span", { class: ("mark " + extra).trim(), title }, text);

const ABSOLUTE = new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeStyle: "medium" });
const SHORT = new Intl.DateTimeFormat(lang, { dateStyle: "short", timeStyle: "short" });
const RELATIVE = new Intl.RelativeTimeFormat(lang, { numeric: "auto" });

export function moment(iso) {
  if (!iso) return el("span", {}, "–");
  const at = new Date(iso);
  return el("time", { class: "ago", datetime: iso, title: ABSOLUTE.format(at) }, ago(at));
}

export const clock = (iso) => SHORT.format(new Date(iso));

function ago(at) {
  const seconds = (at - Date.now()) / 1000;
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (Math.abs(seconds) >= size) return RELATIVE.format(Math.trunc(seconds / size), unit);
  }
  return RELATIVE.format(Math.trunc(seconds), "second");
}

export function duration(from, to) {
  if (!from) return el("span", {}, "–");
  return el("span", to ? {} : { class: "lasting", "data-from": from }, lasted(from, to));
}

function lasted(from, to) {
  const seconds = Math.max(0, ((to ? new Date(to) : Date.now()) - new Date(from)) / 1000);
  const text = (...parts) => parts.map(([number, unit]) => number + " " + words[unit]).join(" ");
  if (seconds < 9.95) return text([seconds.toFixed(1), "seconds"]);
  const whole = Math.round(seconds);
  if (whole < 60) return text([whole, "seconds"]);
  if (whole < 3600) return text([Math.floor(whole / 60), "minutes"], [whole % 60, "seconds"]);
  if (whole < 86400) return text([Math.floor(whole / 3600), "hours"], [Math.floor((whole % 3600) / 60), "minutes"]);
  return text([Math.floor(whole / 86400), "days"], [Math.floor((whole % 86400) / 3600), "hours"]);
}

// Times and durations that go on, without drawing anything else anew.
export function tick() {
  for (const node of document.querySelectorAll("time.ago")) node.textContent = ago(new Date(node.dateTime));
  for (const node of document.querySelectorAll(".lasting")) node.textContent = lasted(node.dataset.from, null);
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return (unit ? bytes.toFixed(1) : bytes) + " " + units[unit];
}

export function live(state) {
  const mark = document.getElementById("live");
  mark.hidden = state === null;
  mark.textContent = state ? words.live : words.offline;
  mark.classList.toggle("off", !state);
}
