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

const ABSOLUTE = new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeStyle: "medium" });
const RELATIVE = new Intl.RelativeTimeFormat(lang, { numeric: "auto" });

export function moment(iso) {
  if (!iso) return el("span", {}, "–");
  const at = new Date(iso);
  return el("time", { datetime: iso, title: ABSOLUTE.format(at) }, ago(at));
}

function ago(at) {
  const seconds = (at - Date.now()) / 1000;
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (Math.abs(seconds) >= size) return RELATIVE.format(Math.trunc(seconds / size), unit);
  }
  return RELATIVE.format(Math.trunc(seconds), "second");
}

export function duration(from, to) {
  if (!from) return "–";
  const seconds = Math.max(0, ((to ? new Date(to) : Date.now()) - new Date(from)) / 1000);
  if (seconds < 10) return seconds.toFixed(1) + " s";
  if (seconds < 60) return Math.round(seconds) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.round(seconds % 60) + " s";
  return Math.floor(seconds / 3600) + " h " + Math.floor((seconds % 3600) / 60) + " min";
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
