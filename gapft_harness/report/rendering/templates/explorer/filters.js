// The filters above the list.

class Filters {
  /** @param onChoice called with the parts of the view that the user changed. */
  constructor(root, index, onChoice) {
    Object.assign(this, { root, index, onChoice });
    this.controls = [this.#states(), this.#before(), this.#samples(), ...this.#outcomes(), this.#seeds(), ...this.#fields()].filter(Boolean);
    root.append(...this.controls.map((control) => control.element));
  }

  /** Sets the controls to a view. */
  show(view) {
    for (const control of this.controls) control.set(view);
    const choices = [view.states, view.seed !== "any", view.before, view.samples, ...Object.keys(view.outcomes), ...Object.keys(view.fields)];
    this.count = choices.filter(Boolean).length;
  }

  #states() {
    if (!this.index.states) return null;
    const counts = { G: 0, S: 0, U: 0 };
    for (const state of this.index.states) counts[state]++;
    const boxes = [..."GSU"].map((state) => element("input", { type: "checkbox", value: state }));
    const changed = () => {
      const states = boxes.filter((box) => box.checked).map((box) => box.value).join("");
      this.onChoice({ states: states === "GSU" ? "" : states });
    };
    const labels = boxes.map((box) => {
      box.addEventListener("change", changed);
      return element("label", {}, box, element("span", {}, `${box.value} `, element("small", {}, formatNumber(counts[box.value]))));
    });
    return {
      element: element("fieldset", { class: "toggles" }, element("legend", {}, "State"), labels),
      set: (view) => { for (const box of boxes) box.checked = view.states.includes(box.value); },
    };
  }

  /** Builds the filters for the verdict on the response before, and its reason. */
  #before() {
    const words = listVerdicts(this.index);
    if (!words.length) return null;
    const order = ["right", "wrong", ...listUnjudged(this.index)].filter((word) => words.includes(word));
    return buildChoice(
      this.index.before,
      [["", "any verdict"], ...order.map((word) => [word, word]), ...this.#reasons()],
      (view) => view.before,
      (value) => this.onChoice({ before: value }),
    );
  }

  #samples() {
    const { verdicts, samples } = this.index;
    const codes = new Set(samples.flat());
    const words = listUnjudged(this.index).filter((word) => codes.has(verdicts.indexOf(word)));
    if (!words.length) return null;
    return buildChoice(
      "samples",
      [["", "any"], ...words.map((word) => [word, `some ${word}`])],
      (view) => view.samples,
      (value) => this.onChoice({ samples: value }),
    );
  }

  #reasons() {
    return listReasons(this.index).map((value, at) => [value, this.index.kinds[at]]);
  }

  #outcomes() {
    const numbers = this.index.models.some(({ outcomes }) => /[hle]/.test(outcomes));
    const words = numbers
      ? ["higher", "lower", "equal"]
      : ["corrected", "regressed", "kept", "missed", "changed", "right", "wrong"];
    return this.index.conditions.map(({ name, label }) => buildChoice(
      label,
      [["", "any outcome"], ...[...words, ...listUnjudged(this.index)].map((word) => [word, word]), ...this.#reasons()],
      (view) => view.outcomes[name] ?? "",
      (value, view) => this.onChoice({ outcomes: setChoice(view.outcomes, name, value || undefined) }),
    ));
  }

  #seeds() {
    if (this.index.seeds.length < 2) return null;
    const seeds = this.index.seeds.map((seed) => [seed, `seed ${seed}`]);
    return buildChoice(
      "Under",
      [["any", "any seed"], ["every", "every seed"], ...seeds],
      (view) => view.seed,
      (value) => this.onChoice({ seed: value }),
    );
  }

  #fields() {
    return Object.entries(this.index.fields).map(([name, { values }]) => buildChoice(
      name,
      [["", "any"], ...values.map((value, code) => [String(code), value || "–"])],
      (view) => Object.hasOwn(view.fields, name) ? String(values.indexOf(view.fields[name])) : "",
      (code, view) => this.onChoice({ fields: setChoice(view.fields, name, values[code]) }),
    ));
  }
}

/** Returns the choices with one entry set; undefined removes it, because an empty value is valid. */
function setChoice(choices, name, value) {
  const { [name]: _, ...others } = choices;
  return value === undefined ? others : { ...others, [name]: value };
}

/** Creates a labelled select: its options, its value in a view, and the action on change. */
function buildChoice(label, options, read, onChange) {
  let shown = emptyView();
  const select = element("select", { onchange: () => onChange(select.value, shown) },
    options.map(([value, words]) => element("option", { value }, words)));
  return {
    element: element("label", { class: "choice" }, element("span", {}, label), select),
    set: (view) => {
      shown = view;
      select.value = read(view);
      select.classList.toggle("set", select.selectedIndex > 0);
    },
  };
}
