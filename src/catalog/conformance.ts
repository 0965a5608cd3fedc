/**
 * Makes listed entries conform to the official schemas (2025-11-25, 2026-07-28), because official clients refuse a
 * whole list for one entry that does not. Conforming entries keep their bytes. Pure.
 */

import { Buffer } from "node:buffer";
import { applyEdits, type ByteRange, type Edit, joinPieces, utf8 } from "../base/bytes.ts";
import {
  appendMembers,
  BACKSLASH,
  everyMemberValue,
  type JsonMember,
  JsonObject,
  lastMember,
  OPEN_BRACE,
  OPEN_BRACKET,
  parseRange,
  QUOTE,
  readString,
  removeMembers,
  scanArray,
  scanObject,
  skipValue,
} from "../base/json.ts";
import { isCompilable } from "./compilable-schema.ts";
import { KEY_MEMBERS, type Kind, type ListedItem, MAX_ENTRY_DEPTH, readItem } from "./listing.ts";

/**
 * The official schema that an entry must conform to, by the client's protocol: 2025-11-25 (`legacy`) or 2026-07-28
 * (`modern`). `wrapped`: as `legacy`, but for an entry of a modern server. If the entry is a tool, its output schema
 * is later wrapped in an object schema (protocol/translate.ts).
 */
export type SchemaVariant = "legacy" | "wrapped" | "modern";

/** An entry in the form in which clients may see it. */
export interface ConformanceResult {
  /** The same object if nothing had to be changed; undefined if no client can be shown the entry. */
  readonly item: ListedItem | undefined;
  /** What was changed, or why the entry is hidden, as sentences; empty if nothing was changed. */
  readonly text: string;
}

/** The cached results: each entry is checked only once against each schema. */
const resultCache: Readonly<Record<SchemaVariant, WeakMap<ListedItem, ConformanceResult>>> = {
  legacy: new WeakMap(),
  wrapped: new WeakMap(),
  modern: new WeakMap(),
};

/** Returns the entry with the smallest change that makes it conform. The result is cached by entry and rules. */
export function conform(item: ListedItem, kind: Kind, rules: SchemaVariant): ConformanceResult {
  const cached = resultCache[rules].get(item);
  if (cached !== undefined) return cached;
  const result = makeConforming(item, kind, rules);
  resultCache[rules].set(item, result);
  return result;
}

/**
 * Whether an entry conforms unchanged to the schemas of 2025-11-25 and of 2026-07-28. Its nesting depth is not checked.
 * @param bytes the entry alone
 * @param members all members of the entry
 */
export function conforms(bytes: Uint8Array, kind: Kind, members: readonly JsonMember[]): boolean {
  if (mayHaveSurrogates(bytes)) return false;
  // Only the `legacy` rules are checked: an entry that conforms to them conforms to all other rules, too.
  const check = new EntryCheck(bytes);
  if (kind === "skills" && !SKILL(check, { start: 0, end: bytes.length }, "")) return false;
  checkEntry(check, kind, "legacy", members);
  return check.edits.length === 0;
}

function makeConforming(item: ListedItem, kind: Kind, rules: SchemaVariant): ConformanceResult {
  if (item.state === "sound") return { item, text: "" };
  if (item.state === "unnamed") {
    return { item: undefined, text: `It has no ${KEY_MEMBERS[kind]}.` };
  }
  if (item.state === "nested" || skipValue(item.bytes, 0, MAX_ENTRY_DEPTH) < 0) {
    return { item: undefined, text: `It is nested more than ${MAX_ENTRY_DEPTH} deep.` };
  }
  const repaired = replaceSurrogates(item.bytes);
  const check = new EntryCheck(repaired ?? item.bytes);
  if (kind === "skills" && !SKILL(check, { start: 0, end: check.bytes.length }, "")) {
    return { item: undefined, text: "Its frontmatter or its resources do not describe a skill." };
  }
  checkEntry(check, kind, rules);
  const texts = check.describe();
  if (repaired !== undefined) texts.push("Lone surrogates were replaced by U+FFFD.");
  if (texts.length === 0) return { item, text: "" };
  const bytes = joinPieces(applyEdits(check.bytes, check.edits));
  const read = readItem(bytes, kind);
  // The item keeps the key that the server sent, even if an edit has changed the key in `bytes`: requests to the server
  // must use the server's key.
  const made = read && { ...read, key: item.key, original: item.bytes };
  return { item: made, text: texts.join(" ") };
}

/** Maximum number of paths that the `text` of a result names. */
const MAX_PATHS = 5;

/** The check of one entry: collects the edits it needs and the paths of what is edited. */
class EntryCheck {
  readonly bytes: Uint8Array;
  readonly edits: Edit[] = [];
  readonly #removedPaths: string[] = [];
  readonly #setPaths: string[] = [];

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  /** Removes members of an object. @param members all members of the object */
  removeMembersAt(
    objectRange: Pick<ByteRange, "start">,
    members: readonly JsonMember[],
    keys: readonly string[],
    path: string,
  ): void {
    if (keys.length === 0) return;
    this.edits.push(
      ...removeMembers(this.bytes, objectRange, members, (key) => keys.includes(key)),
    );
    for (const key of keys) this.#removedPaths.push(path === "" ? key : `${path}.${key}`);
  }

  /** Removes elements of an array. @param elements all elements of the array */
  removeElements(
    array: Pick<ByteRange, "start">,
    elements: readonly ByteRange[],
    indices: ReadonlySet<number>,
    path: string,
  ): void {
    const members = elements.map(({ start, end }, i) => ({ key: String(i), start, end }));
    this.edits.push(
      ...removeMembers(this.bytes, array, members, (key) => indices.has(Number(key))),
    );
    for (const i of indices) this.#removedPaths.push(`${path}[${i}]`);
  }

  setValue(edit: Edit, path: string): void {
    this.edits.push(edit);
    this.#setPaths.push(path);
  }

  describe(): string[] {
    const list = (paths: readonly string[]): string => {
      const more = paths.length - MAX_PATHS;
      return `${paths.slice(0, MAX_PATHS).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
    };
    const texts: string[] = [];
    if (this.#setPaths.length > 0)
      texts.push(`Added members that clients need: ${list(this.#setPaths)}.`);
    if (this.#removedPaths.length > 0) {
      texts.push(`Removed members that clients cannot read: ${list(this.#removedPaths)}.`);
    }
    return texts;
  }
}

/**
 * Checks a value, and may add edits that make parts of it valid. A value that is not allowed gets no edits inside it.
 * @returns whether the value is allowed
 */
type Rule = (check: EntryCheck, at: ByteRange, path: string) => boolean;
type Rules = Readonly<Record<string, Rule>>;

const text: Rule = ({ bytes }, { start }) => bytes[start] === QUOTE;
const boolean: Rule = ({ bytes }, { start }) => bytes[start] === 0x74 || bytes[start] === 0x66;
const anyObject: Rule = ({ bytes }, { start }) => bytes[start] === OPEN_BRACE;

function oneOf(...words: readonly string[]): Rule {
  return ({ bytes }, at) => words.includes(readString(bytes, at) ?? "");
}

function numberWhere(isAllowed: (value: number) => boolean): Rule {
  return ({ bytes }, at) => {
    const value = parseRange(bytes, at);
    return typeof value === "number" && isAllowed(value);
  };
}

function arrayOf(rule: Rule): Rule {
  return (check, at, path) => {
    if (check.bytes[at.start] !== OPEN_BRACKET) return false;
    const elements = scanArray(check.bytes, at.start)?.items;
    return elements?.every((element) => rule(check, element, path)) === true;
  };
}

/** Makes the rule for an array: elements that `rule` does not allow are removed. */
function arrayWithout(rule: Rule): Rule {
  return (check, at, path) => {
    const elements = scanArray(check.bytes, at.start)?.items;
    if (elements === undefined) return false;
    const invalid = new Set<number>();
    for (const [i, element] of elements.entries()) {
      if (!rule(check, element, `${path}[${i}]`)) invalid.add(i);
    }
    if (invalid.size > 0) check.removeElements(at, elements, invalid, path);
    return true;
  };
}

/**
 * Makes the rule for an object: optional members that are not allowed are removed. An object with a missing or invalid
 * required member is not allowed.
 */
function object(optional: Rules, required: Rules = {}): Rule {
  return (check, at, path) => {
    const members = scanObject(check.bytes, at.start)?.items;
    if (members === undefined) return false;
    for (const [key, rule] of Object.entries(required)) {
      const member = lastMember(members, key);
      if (member === undefined || !rule(check, member, path)) return false;
    }
    check.removeMembersAt(at, members, invalidKeysOf(check, members, optional, path), path);
    return true;
  };
}

function invalidKeysOf(
  check: EntryCheck,
  members: readonly JsonMember[],
  rules: Rules,
  path: string,
): string[] {
  const invalid: string[] = [];
  for (const member of members) {
    const { key } = member;
    const rule = Object.hasOwn(rules, key) ? rules[key] : undefined;
    // Members without a rule are skipped. Of several members with the same key only the last is checked, because
    // parsers use the last.
    if (rule === undefined || invalid.includes(key) || lastMember(members, key) !== member)
      continue;
    if (!rule(check, member, path === "" ? key : `${path}.${key}`)) invalid.push(key);
  }
  return invalid;
}

/** The timestamps that the TypeScript SDK accepts: ISO 8601 with a time zone, seconds optional. */
const TIMESTAMP = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2})$/;
const timestamp: Rule = ({ bytes }, at) => {
  const value = readString(bytes, at) ?? "";
  if (!TIMESTAMP.test(value)) return false;
  // `Date.parse` reads a day that does not exist, such as 30 February, as a later day. Therefore, the date alone is
  // read as UTC, and the result must be the same day.
  const date = value.slice(0, 10);
  const ms = Date.parse(`${date}T00:00:00Z`);
  return (
    !Number.isNaN(ms) &&
    new Date(ms).toISOString().startsWith(date) &&
    !Number.isNaN(Date.parse(value))
  );
};

const ICON = object(
  { mimeType: text, sizes: arrayOf(text), theme: oneOf("light", "dark") },
  { src: text },
);
const COMMON: Rules = {
  title: text,
  description: text,
  icons: arrayWithout(ICON),
  _meta: anyObject,
};
const ANNOTATIONS = object({
  audience: arrayOf(oneOf("user", "assistant")),
  priority: numberWhere((value) => value >= 0 && value <= 1),
  lastModified: timestamp,
});
const TEMPLATE: Rules = { ...COMMON, mimeType: text, annotations: ANNOTATIONS };
const TOOL: Rules = {
  ...COMMON,
  annotations: object({
    title: text,
    readOnlyHint: boolean,
    destructiveHint: boolean,
    idempotentHint: boolean,
    openWorldHint: boolean,
  }),
};
const LEGACY_TOOL: Rules = {
  ...TOOL,
  execution: object({ taskSupport: oneOf("forbidden", "optional", "required") }),
};

/** Rules for the optional members of an entry, by kind and schema. */
const OPTIONAL: Readonly<Record<Kind, Readonly<Record<SchemaVariant, Rules>>>> = {
  tools: {
    legacy: { ...LEGACY_TOOL, outputSchema: checkLegacyOutput },
    wrapped: { ...LEGACY_TOOL, outputSchema: checkWrappedOutput },
    modern: { ...TOOL, outputSchema: checkModernOutput },
  },
  prompts: sameForAllRules({
    ...COMMON,
    arguments: arrayWithout(
      object({ title: text, description: text, required: boolean }, { name: text }),
    ),
  }),
  resources: sameForAllRules({ ...TEMPLATE, size: numberWhere(Number.isSafeInteger) }),
  resourceTemplates: sameForAllRules(TEMPLATE),
  skills: sameForAllRules({}),
};

/** The required members of a skill entry (ext-skills, Skill Entries). */
const SKILL: Rule = object(
  {},
  {
    frontmatter: (check, at) => {
      const frontmatter = JsonObject.at(check.bytes, at);
      return ["name", "description"].every((key) => frontmatter.string(key) !== undefined);
    },
    resources: (check, at, path) =>
      readString(check.bytes, at) === "dynamic" || arrayOf(SKILL_FILE)(check, at, path),
  },
);
const SKILL_FILE: Rule = object(
  {},
  {
    uri: text,
    digest: text,
    size: numberWhere((value) => Number.isSafeInteger(value) && value >= 0),
  },
);

function sameForAllRules(rules: Rules): Readonly<Record<SchemaVariant, Rules>> {
  return { legacy: rules, wrapped: rules, modern: rules };
}

/**
 * @param members all members of the entry; by default, they are scanned. If the entry has more members than the scanner
 * can record, nothing is checked
 */
function checkEntry(
  check: EntryCheck,
  kind: Kind,
  rules: SchemaVariant,
  members = scanObject(check.bytes, 0)?.items,
): void {
  if (members === undefined) return;
  const { bytes } = check;
  const whole = { start: 0, end: bytes.length };
  check.removeMembersAt(
    whole,
    members,
    invalidKeysOf(check, members, OPTIONAL[kind][rules], ""),
    "",
  );
  if (kind === "tools") checkInput(check, whole, members, rules);
  if (kind !== "resources" && kind !== "resourceTemplates") return;
  const name = lastMember(members, "name");
  if (name !== undefined && text(check, name, "name")) return;
  // An entry without a name gets its key as its name, because clients show the name to people.
  const key = lastMember(members, KEY_MEMBERS[kind]);
  if (key === undefined) return;
  const by = bytes.slice(key.start, key.end);
  check.setValue(
    name === undefined
      ? appendMembers(bytes, whole, `"name":${Buffer.from(by).toString()}`)
      : { start: name.start, end: name.end, replacement: by },
    "name",
  );
}

const OBJECT = '"object"';
const ANY_OBJECT = `{"type":${OBJECT}}`;

function checkInput(
  check: EntryCheck,
  whole: ByteRange,
  members: readonly JsonMember[],
  rules: SchemaVariant,
): void {
  const { bytes } = check;
  const member = lastMember(members, "inputSchema");
  if (member === undefined) {
    check.setValue(appendMembers(bytes, whole, `"inputSchema":${ANY_OBJECT}`), "inputSchema");
  } else if (bytes[member.start] !== OPEN_BRACE) {
    check.setValue(
      { start: member.start, end: member.end, replacement: ANY_OBJECT },
      "inputSchema",
    );
  } else {
    checkSchema(check, member, "inputSchema", rules !== "modern", true);
  }
}

/** The keywords at the root of a tool's schema whose type the MCP schema prescribes. */
const KEYWORDS = ["$schema", "type", "properties", "required"] as const;

/**
 * Makes a tool's schema conform; the schema is a JSON object already. A keyword whose value has a type that JSON Schema
 * does not allow for the keyword, such as `required: true`, has no meaning and is removed.
 * @param isLegacy whether `properties` and `required` must follow the schema of the older protocol versions
 * @param isTyped whether the schema must have the type "object"
 */
function checkSchema(
  check: EntryCheck,
  at: ByteRange,
  path: string,
  isLegacy: boolean,
  isTyped: boolean,
): void {
  const { bytes } = check;
  const keywords = scanObject(bytes, at.start, KEYWORDS)?.items ?? [];
  const [dialect, type, properties, required] = KEYWORDS.map((key) => lastMember(keywords, key));
  const invalid: string[] = [];
  if (dialect !== undefined && !text(check, dialect, path)) invalid.push("$schema");
  if (isLegacy && properties !== undefined) {
    if (bytes[properties.start] === OPEN_BRACE) checkProperties(check, properties, path);
    else invalid.push("properties");
  }
  if (isLegacy && required !== undefined && !STRING_ARRAY(check, required, path))
    invalid.push("required");
  const all = invalid.length === 0 ? undefined : scanObject(bytes, at.start)?.items;
  if (all !== undefined) check.removeMembersAt(at, all, invalid, path);
  if (!isTyped || (type !== undefined && readString(bytes, type) === "object")) return;
  if (type !== undefined) {
    check.setValue({ start: type.start, end: type.end, replacement: OBJECT }, `${path}.type`);
    return;
  }
  const isLast =
    scanObject(bytes, at.start)?.items.every(
      ({ key }) => all !== undefined && invalid.includes(key),
    ) ?? false;
  const by = `"type":${OBJECT}${isLast ? "" : ","}`;
  check.setValue({ start: at.start + 1, end: at.start + 1, replacement: by }, `${path}.type`);
}
const STRING_ARRAY = arrayOf(text);

/** Replaces boolean schemas by equivalent objects: clients of the older protocol versions accept only objects. */
function checkProperties(check: EntryCheck, properties: ByteRange, path: string): void {
  const { bytes } = check;
  if (everyMemberValue(bytes, properties.start, (start) => bytes[start] === OPEN_BRACE)) return;
  for (const { key, start, end } of scanObject(bytes, properties.start)?.items ?? []) {
    if (bytes[start] === OPEN_BRACE) continue;
    const by = bytes[start] === 0x66 ? '{"not":{}}' : "{}";
    check.setValue({ start, end, replacement: by }, `${path}.properties.${key.slice(0, 50)}`);
  }
}

/** Whether a client of the older protocol versions (legacy) can compile an output schema. */
function isCompilableSchema({ bytes }: EntryCheck, at: ByteRange): boolean {
  return bytes[at.start] === OPEN_BRACE && isCompilable(parseRange(bytes, at));
}

/**
 * Checks an output schema for the older protocol versions (legacy). Structured output is always an object there, so a
 * missing type becomes "object".
 */
function checkLegacyOutput(check: EntryCheck, at: ByteRange, path: string): boolean {
  const { bytes } = check;
  if (!isCompilableSchema(check, at)) return false;
  const declared = JsonObject.at(bytes, at).value("type");
  const mayBeObject =
    declared === "object" || (Array.isArray(declared) && declared.includes("object"));
  if (declared !== undefined && !mayBeObject) return false;
  checkSchema(check, at, path, true, true);
  return true;
}

function checkWrappedOutput(check: EntryCheck, at: ByteRange, path: string): boolean {
  if (!isCompilableSchema(check, at)) return false;
  const isTypedObject = JsonObject.at(check.bytes, at).string("type") === "object";
  checkSchema(check, at, path, isTypedObject, false);
  return true;
}

function checkModernOutput(check: EntryCheck, at: ByteRange, path: string): boolean {
  if (check.bytes[at.start] !== OPEN_BRACE) return false;
  checkSchema(check, at, path, false, false);
  return true;
}

const SURROGATE_PREFIXES = ["\\ud", "\\uD"].map((sign) => Buffer.from(sign));

/** Whether the bytes may contain an escaped surrogate. A fast check: true may be wrong, false never is. */
function mayHaveSurrogates(bytes: Uint8Array): boolean {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  return SURROGATE_PREFIXES.some((sign) => buffer.includes(sign));
}

const REPLACEMENT = utf8("\\ufffd");
const ESCAPE_LENGTH = 6;

/**
 * Returns a copy in which each lone surrogate escape is replaced by `\ufffd`, which has the same length; undefined if
 * there is none.
 */
function replaceSurrogates(bytes: Uint8Array): Uint8Array | undefined {
  if (!mayHaveSurrogates(bytes)) return undefined;
  let copy: Uint8Array | undefined;
  for (let at = bytes.indexOf(BACKSLASH); at >= 0; at = bytes.indexOf(BACKSLASH, at)) {
    const unit = unitAt(bytes, at);
    if (unit === undefined) {
      at += 2;
      continue;
    }
    const isSurrogate = unit >= 0xd800 && unit <= 0xdfff;
    const next = unit <= 0xdbff ? unitAt(bytes, at + ESCAPE_LENGTH) : undefined;
    if (isSurrogate && next !== undefined && next >= 0xdc00 && next <= 0xdfff) {
      at += 2 * ESCAPE_LENGTH;
      continue;
    }
    if (isSurrogate) {
      copy ??= Uint8Array.from(bytes);
      copy.set(REPLACEMENT, at);
    }
    at += ESCAPE_LENGTH;
  }
  return copy;
}

/** The UTF-16 unit of the escape sequence at `at`; undefined if there is no `\u` escape. */
function unitAt(bytes: Uint8Array, at: number): number | undefined {
  if (bytes[at] !== BACKSLASH || bytes[at + 1] !== 0x75) return undefined;
  return Number.parseInt(String.fromCharCode(...bytes.subarray(at + 2, at + ESCAPE_LENGTH)), 16);
}
