/* Regular expressions of filters. Servers choose the texts that they are applied to, so the time must be bounded. */

/** Says whether a text contains a match. */
export interface Pattern {
  test(text: string): boolean;
}

/**
 * Maximum number of instructions of a compiled pattern. A counted repetition such as `a{1000}` is written out, so a
 * short pattern can have many.
 */
const MAX_INSTRUCTIONS = 4000;

/**
 * Compiles a regular expression (with the flag `u`), which takes time in proportion to the lengths of the pattern and
 * of the text, or to their squares with lookaround: all ways to match are followed at once, instead of one after the
 * other as the runtime's engine does.
 * @throws {SyntaxError} if it is not valid, or refers back to a group
 */
export function compilePattern(pattern: string): Pattern {
  const native = new RegExp(pattern, "u");
  const tokens = Array.from(pattern.matchAll(TOKENS), ([token]) => token);
  // Without any choice there is one way to match at each place of the text, which the engine of the runtime follows.
  if (!tokens.some((token) => /^(?:[*+?|{]|\).)/su.test(token))) return native;
  const program = new PatternCompiler(tokens).compile();
  return { test: (text) => endsOf(program, text, everyStart(text), new Map()).size > 0 };
}

/**
 * The tokens of a valid regular expression. An escape or a character class is one token, whatever characters it
 * contains; so is the opening of a group, such as `(?:`, and the end of a group with its quantifier.
 */
const TOKENS =
  /\\(?:[pPu]\{[^}]*\}|u[\dA-Fa-f]{4}|x[\dA-Fa-f]{2}|k<[^>]*>|c[A-Za-z]|[1-9]\d*|.)|\[(?:\\.|[^\]\\])*(?:\]|$)|\((?:\?(?:[:=!]|<[=!]|<[^>]*>|[a-z-]*:))?|\)(?:[*+?]\??|\{\d[^}]*\}\??)?|[*+?]\??|\{\d[^}]*\}\??|./gsu;

/**
 * `atom`: matches at a place, and goes on after its match. `split`: goes on at several instructions. `look`: goes on if
 * its program matches here, or does not. `end`: the pattern has matched.
 */
type Instruction =
  | { readonly kind: "atom"; readonly regExp: RegExp }
  | { readonly kind: "split"; readonly to: number[] }
  | {
      readonly kind: "look";
      readonly program: readonly Instruction[];
      readonly isBehind: boolean;
      readonly isNegative: boolean;
    }
  | { readonly kind: "end" };

/** A part of a pattern: all its alternatives, each a sequence. */
type Part =
  | { readonly kind: "atom"; readonly regExp: RegExp }
  | { readonly kind: "group"; readonly alternatives: Repeated[][] }
  | {
      readonly kind: "look";
      readonly alternatives: Repeated[][];
      readonly isBehind: boolean;
      readonly isNegative: boolean;
    };

interface Repeated {
  readonly part: Part;
  readonly min: number;
  readonly max: number;
}

/** Compiles the tokens of a valid regular expression. */
class PatternCompiler {
  readonly #tokens: readonly string[];
  #at = 0;
  #instructions = 0;

  constructor(tokens: readonly string[]) {
    this.#tokens = tokens;
  }

  compile(): readonly Instruction[] {
    return this.#programOf(this.#readAlternatives(""));
  }

  /** @param modifiers the openings of groups such as `(?i:` that contain the place */
  #readAlternatives(modifiers: string): Repeated[][] {
    let sequence: Repeated[] = [];
    const alternatives = [sequence];
    for (; this.#at < this.#tokens.length; this.#at++) {
      const token = this.#tokens[this.#at] ?? "";
      if (token.startsWith(")")) return alternatives;
      if (token === "|") {
        sequence = [];
        alternatives.push(sequence);
        continue;
      }
      const part = this.#readPart(token, modifiers);
      const quantifier = this.#readQuantifier(token);
      sequence.push({ part, ...quantifier });
    }
    return alternatives;
  }

  #readPart(token: string, modifiers: string): Part {
    if (!token.startsWith("(")) {
      if (/^\\(?:[1-9]|k<)/.test(token)) {
        throw new SyntaxError("it refers back to a group, which may take very long");
      }
      const closing = ")".repeat(modifiers.split("(").length - 1);
      return { kind: "atom", regExp: new RegExp(`${modifiers}(?:${token})${closing}`, "uy") };
    }
    this.#at++;
    const inner = /^\(\?[a-z-]+:$/.test(token) ? modifiers + token : modifiers;
    const alternatives = this.#readAlternatives(inner);
    const look = /^\(\?(?<behind><?)(?<sign>[=!])$/.exec(token)?.groups;
    if (look === undefined) return { kind: "group", alternatives };
    const isBehind = look["behind"] === "<";
    return { kind: "look", alternatives, isBehind, isNegative: look["sign"] === "!" };
  }

  /** Reads the quantifier after a part; that of a group is in the token that ends it. */
  #readQuantifier(token: string): { readonly min: number; readonly max: number } {
    let text = "";
    if (token.startsWith("(")) text = (this.#tokens[this.#at] ?? "").slice(1);
    else if (/^(?:[*+?]|\{\d)/.test(this.#tokens[this.#at + 1] ?? "")) {
      text = this.#tokens[++this.#at] ?? "";
    }
    const counts = /^\{(?<min>\d+)(?<comma>,?)(?<max>\d*)\}/.exec(text)?.groups;
    if (counts !== undefined) {
      const min = Number(counts["min"]);
      const open = counts["comma"] === "" ? min : Infinity;
      return { min, max: counts["max"] === "" ? open : Number(counts["max"]) };
    }
    if (text.startsWith("*")) return { min: 0, max: Infinity };
    if (text.startsWith("+")) return { min: 1, max: Infinity };
    return text.startsWith("?") ? { min: 0, max: 1 } : { min: 1, max: 1 };
  }

  #programOf(alternatives: readonly Repeated[][]): readonly Instruction[] {
    const program: Instruction[] = [];
    this.#addAlternatives(program, alternatives);
    this.#add(program, { kind: "end" });
    return program;
  }

  #add(program: Instruction[], instruction: Instruction): void {
    if (++this.#instructions > MAX_INSTRUCTIONS) {
      throw new SyntaxError("it is too long when its repetitions are written out");
    }
    program.push(instruction);
  }

  #addAlternatives(program: Instruction[], alternatives: readonly Repeated[][]): void {
    const exits: number[][] = [];
    for (const [index, sequence] of alternatives.entries()) {
      const isLast = index === alternatives.length - 1;
      const to = [program.length + 1];
      if (!isLast) this.#add(program, { kind: "split", to });
      for (const repeated of sequence) this.#addRepeated(program, repeated);
      if (isLast) break;
      const exit: number[] = [];
      this.#add(program, { kind: "split", to: exit });
      exits.push(exit);
      to.push(program.length);
    }
    for (const exit of exits) exit.push(program.length);
  }

  #addRepeated(program: Instruction[], { part, min, max }: Repeated): void {
    for (let count = 0; count < min; count++) this.#addPart(program, part);
    if (max === Infinity) {
      const start = program.length;
      const to = [start + 1];
      this.#add(program, { kind: "split", to });
      this.#addPart(program, part);
      this.#add(program, { kind: "split", to: [start] });
      to.push(program.length);
      return;
    }
    const exits: number[][] = [];
    for (let count = min; count < max; count++) {
      const to = [program.length + 1];
      this.#add(program, { kind: "split", to });
      exits.push(to);
      this.#addPart(program, part);
    }
    for (const to of exits) to.push(program.length);
  }

  #addPart(program: Instruction[], part: Part): void {
    if (part.kind === "group") this.#addAlternatives(program, part.alternatives);
    else if (part.kind === "atom") this.#add(program, part);
    else {
      const { isBehind, isNegative } = part;
      const inner = this.#programOf(part.alternatives);
      this.#add(program, { kind: "look", program: inner, isBehind, isNegative });
    }
  }
}

/** All places at which a match can begin: not between the halves of a surrogate pair. */
function everyStart(text: string): readonly number[] {
  const starts = [0];
  for (let at = 0; at < text.length;) {
    at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
    starts.push(at);
  }
  return starts;
}

/**
 * What is known of the lookarounds of a pattern in one text: for each place whether a lookahead matches there, and the
 * places at which matches of a lookbehind end. Nested lookarounds would otherwise be tried again and again.
 */
type KnownLooks = Map<Instruction, Map<number, boolean> | ReadonlySet<number>>;

/** The places at which matches end that begin at one of the given places. */
function endsOf(
  program: readonly Instruction[],
  text: string,
  starts: readonly number[],
  looks: KnownLooks,
): ReadonlySet<number> {
  const ends = new Set<number>();
  const width = text.length + 1;
  const visited = new Uint8Array(program.length * width);
  const open: number[] = [];
  const visit = (instruction: number, at: number): void => {
    const state = instruction * width + at;
    if (visited[state] === 1) return;
    visited[state] = 1;
    open.push(state);
  };
  for (const start of starts) visit(0, start);
  for (let state = open.pop(); state !== undefined; state = open.pop()) {
    const index = Math.floor(state / width);
    const at = state % width;
    const instruction = program[index];
    if (instruction === undefined) continue;
    if (instruction.kind === "end") ends.add(at);
    else if (instruction.kind === "split") for (const next of instruction.to) visit(next, at);
    else if (instruction.kind === "atom") {
      const { regExp } = instruction;
      regExp.lastIndex = at;
      if (regExp.test(text)) visit(index + 1, regExp.lastIndex);
    } else {
      const matches = looksAt(instruction, text, at, looks);
      if (matches !== instruction.isNegative) visit(index + 1, at);
    }
  }
  return ends;
}

/** Whether a lookaround matches at a place. */
function looksAt(
  look: Extract<Instruction, { kind: "look" }>,
  text: string,
  at: number,
  looks: KnownLooks,
): boolean {
  const known = looks.get(look);
  if (known instanceof Set) return known.has(at);
  if (look.isBehind) {
    const ends = endsOf(look.program, text, everyStart(text), looks);
    looks.set(look, ends);
    return ends.has(at);
  }
  const places = known instanceof Map ? known : new Map<number, boolean>();
  looks.set(look, places);
  let matches = places.get(at);
  if (matches === undefined) {
    matches = endsOf(look.program, text, [at], looks).size > 0;
    places.set(at, matches);
  }
  return matches;
}
