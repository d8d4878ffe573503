// Elements. Whatever a model wrote comes in as text: as a string among the children.

/** An element with attributes, where false and null leave one out, and children. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

const byId = (id) => document.getElementById(id);

const whole = (number) => number.toLocaleString("en");

/** A verdict as a class name: right, wrong, or else. */
const tone = (verdict) => (verdict === "right" ? "right" : verdict === "wrong" ? "wrong" : "else");

const toneOf = { c: "right", k: "kept", r: "wrong", m: "missed", h: "right", l: "wrong", e: "kept" };

/** The mark of an outcome, which a word beside it or a label of its parent says too. */
function mark(letter) {
  return element("span", { class: `mark ${toneOf[letter]}`, "aria-hidden": "true" }, OUTCOMES[letter][1]);
}
