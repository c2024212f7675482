// A small line of a metric over its steps, as an SVG made of nodes (no markup, no inline styles).
import { el } from "./common.js";

const WIDTH = 300;
const HEIGHT = 72;
const MOST = 600;
const SVG = "http://www.w3.org/2000/svg";

// points: [step or null, value or null]. Returns the nodes: greatest value, line, least value.
export function curve(points, text, name) {
  const there = points.map(([step, value], index) => [step ?? index, value]).filter(([, value]) => Number.isFinite(value));
  if (there.length < 2) return [];
  const [low, high] = bounds(there.map(([, value]) => value));
  const [first, last] = bounds(there.map(([step]) => step));
  const x = (step) => last === first ? WIDTH / 2 : 2 + (step - first) / (last - first) * (WIDTH - 4);
  const y = (value) => high === low ? HEIGHT / 2 : HEIGHT - 3 - (value - low) / (high - low) * (HEIGHT - 6);
  let before = Infinity;
  const path = thinned(there).map(([step, value]) => {
    const begins = step <= before;  // a further attempt starts over
    before = step;
    return (begins ? "M" : "L") + x(step).toFixed(1) + " " + y(value).toFixed(1);
  }).join("");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 " + WIDTH + " " + HEIGHT);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", name + ": " + text(low) + " – " + text(high));
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  line.setAttribute("vector-effect", "non-scaling-stroke");
  svg.append(line);
  const label = (...parts) => el("div", { class: "scale" }, ...parts.map((part) => el("span", {}, part)));
  return [label("max " + text(high)), svg, label("min " + text(low), text(first) + " – " + text(last))];
}

function bounds(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function thinned(points) {
  const stride = Math.ceil(points.length / MOST);
  return stride === 1 ? points : points.filter((_, index) => index % stride === 0 || index === points.length - 1);
}
