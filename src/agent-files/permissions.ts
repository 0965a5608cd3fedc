import type { Table } from "../manifest/table.ts";

/**
 * Which calls of its agents a file forbids (`deny`), wants to have allowed by a person (`ask`), or wants to make without
 * asking (`allow`).
 */
export interface Permissions {
  readonly deny: readonly PermissionRule[];
  readonly ask: readonly PermissionRule[];
  readonly allow: readonly PermissionRule[];
}

/** A pattern such as `shell:cmd=rm *`, parsed. */
export interface PermissionRule {
  /** The pattern as it is written. */
  readonly text: string;
  readonly tool: (name: string) => boolean;
  /** The arguments that must have such a value, all of them. */
  readonly args: readonly { readonly name: string; readonly value: (text: string) => boolean }[];
}

/** A call, as far as rules look at it. */
export interface CheckedCall {
  /** All names of the tool, such as `read_file`, `filesystem__read_file` and `mcp:filesystem:read_file`. */
  readonly names: readonly string[];
  /**
   * The types of the toolsets whose server has the tool. A rule for `shell` is about every tool of the server of the
   * toolset `shell`, whatever that server calls its tools and their arguments.
   */
  readonly toolsets: readonly string[];
  readonly args: Table;
}

export const NO_PERMISSIONS: Permissions = { deny: [], ask: [], allow: [] };

/** Parses a pattern. Its parts are separated by colons; the first part of the form `NAME=VALUE` ends the tool's name. */
export function parsePermission(text: string): PermissionRule {
  const parts = text.split(":");
  const first = parts.findIndex((part, at) => at > 0 && part.indexOf("=") > 0);
  const end = first < 0 ? parts.length : first;
  const args = parts.slice(end).flatMap((part, at, all) => {
    if (part.indexOf("=") <= 0) return [];
    // A colon within a value belongs to the value.
    const next = all.findIndex((other, place) => place > at && other.indexOf("=") > 0);
    const whole = all.slice(at, next < 0 ? undefined : next).join(":");
    const [name = ""] = whole.split("=", 1);
    return [{ name, value: globOf(whole.slice(name.length + 1)) }];
  });
  return { text, tool: globOf(parts.slice(0, end).join(":")), args };
}

/**
 * The rule that decides about a call: a `deny` before an `ask`, and that before an `allow`; undefined: none does. `deny`
 * and `ask` also match if the argument that they name has another name at the server of the toolset; `allow` does not.
 */
export function decidingRule(
  { deny, ask, allow }: Permissions,
  call: CheckedCall,
): { readonly kind: keyof Permissions; readonly rule: PermissionRule } | undefined {
  for (const [kind, rules] of [
    ["deny", deny],
    ["ask", ask],
    ["allow", allow],
  ] as const) {
    const rule = rules.find((one) => matches(one, call, kind !== "allow"));
    if (rule !== undefined) return { kind, rule };
  }
  return undefined;
}

function matches({ tool, args }: PermissionRule, call: CheckedCall, isStrict: boolean): boolean {
  const isNamed = call.names.some((name) => tool(name));
  const isOfToolset = isStrict && call.toolsets.some((type) => tool(type));
  if (!isNamed && !isOfToolset) return false;
  return args.every(({ name, value }) => {
    const isKnown = Object.hasOwn(call.args, name);
    if (!isKnown && !isStrict) return false;
    const given = isKnown ? call.args[name] : Object.values(call.args);
    return textsOf(given).some((text) => value(text));
  });
}

/** The texts of a value: those of a list one by one, and joined as the words of a command. */
function textsOf(value: unknown): readonly string[] {
  if (Array.isArray(value)) {
    const texts = value.flatMap((item: unknown) => textsOf(item));
    return [...texts, texts.join(" ")];
  }
  if (typeof value === "object" && value !== null)
    return Object.values(value).flatMap((item: unknown) => textsOf(item));
  return [typeof value === "string" ? value.trim() : String(value)];
}

/** One part of a pattern: any text (`*`), or a test of one character. */
type GlobPart = "anyText" | ((character: string) => boolean);

/**
 * Makes the test of a glob for whole texts, in any case: `*` stands for any text, `?` for one character, `[a-z]` and
 * `[!a-z]` for one of these or of all others. It takes a time in proportion to the lengths of pattern and text.
 */
function globOf(pattern: string): (text: string) => boolean {
  const parts = partsOf(pattern.toLowerCase());
  return (text) => {
    const characters = text.toLowerCase();
    let [at, part] = [0, 0];
    let star = -1;
    let afterStar = 0;
    while (at < characters.length) {
      const now = parts[part];
      if (now === "anyText") {
        star = part++;
        afterStar = at;
      } else if (now?.(characters.charAt(at)) === true) {
        part++;
        at++;
      } else if (star >= 0) {
        // The last `*` stands for one character more. Earlier ones need no change: they have matched all they have to.
        part = star + 1;
        at = ++afterStar;
      } else return false;
    }
    while (parts[part] === "anyText") part++;
    return part === parts.length;
  };
}

function partsOf(characters: string): readonly GlobPart[] {
  const parts: GlobPart[] = [];
  for (let at = 0; at < characters.length; at++) {
    const character = characters.charAt(at);
    const end = character === "[" ? characters.indexOf("]", at + 2) : -1;
    if (character === "*") {
      if (parts.at(-1) !== "anyText") parts.push("anyText");
    } else if (character === "?") parts.push(() => true);
    else if (end > 0) {
      parts.push(classOf(characters.slice(at + 1, end)));
      at = end;
    } else parts.push((other) => other === character);
  }
  return parts;
}

/** The test for a class such as `a-z_`. */
function classOf(inside: string): (character: string) => boolean {
  const first = inside.charAt(0);
  const isOther = first === "!" || first === "^";
  const members = isOther ? inside.slice(1) : inside;
  const ranges: (readonly [string, string])[] = [];
  for (let at = 0; at < members.length; at++) {
    const from = members.charAt(at);
    const to = members.charAt(at + 1) === "-" ? members.charAt(at + 2) : "";
    ranges.push([from, to || from]);
    if (to !== "") at += 2;
  }
  return (character) =>
    ranges.some(([from, to]) => from <= character && character <= to) !== isOther;
}
