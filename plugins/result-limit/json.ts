/*
 * Where the parts of a JSON text are, so that what is not changed keeps its spelling. Nothing is checked: the text was
 * parsed before.
 */

/** A member of an object, as it is spelled. */
interface Member {
  readonly key: string;
  /** The key in its quotes. */
  readonly name: string;
  readonly value: string;
}

/** The value of a member, as it is spelled; undefined if there is none. Of several the last one counts, as for JSON.parse. */
export function memberOf(json: string, key: string): string | undefined {
  return readMembers(json).findLast((member) => member.key === key)?.value;
}

/** The elements of an array, as they are spelled. */
export function readElements(json: string): string[] {
  const elements: string[] = [];
  for (let at = firstIn(json); json[at] !== "]" && at < json.length; at = nextIn(json, at)) {
    const end = endOfValue(json, at);
    elements.push(json.slice(at, end));
    at = end;
  }
  return elements;
}

/** The object with other values, which are JSON texts; undefined takes a member away. The rest keeps its spelling. */
export function rewrite(
  json: string,
  changes: Readonly<Record<string, string | undefined>>,
): string {
  const left = new Map(Object.entries(changes));
  const members = readMembers(json).flatMap(({ key, name, value }) => {
    if (!Object.hasOwn(changes, key)) return [`${name}:${value}`];
    const changed = left.get(key);
    left.delete(key);
    return changed === undefined ? [] : [`${name}:${changed}`];
  });
  for (const [key, value] of left) {
    if (value !== undefined) members.push(`${JSON.stringify(key)}:${value}`);
  }
  return `{${members.join(",")}}`;
}

function readMembers(json: string): Member[] {
  const members: Member[] = [];
  for (let at = firstIn(json); json[at] !== "}" && at < json.length; at = nextIn(json, at)) {
    const colon = endOfString(json, at);
    const name = json.slice(at, colon);
    const start = skipSpace(json, skipSpace(json, colon) + 1);
    const end = endOfValue(json, start);
    members.push({ key: JSON.parse(name) as string, name, value: json.slice(start, end) });
    at = end;
  }
  return members;
}

/** Where the first element or member of an array or object is, or its closing bracket. */
function firstIn(json: string): number {
  return skipSpace(json, skipSpace(json, 0) + 1);
}

/** From the end of one to the start of the next, or to the closing bracket. */
function nextIn(json: string, end: number): number {
  const at = skipSpace(json, end);
  return json[at] === "," ? skipSpace(json, at + 1) : at;
}

function skipSpace(json: string, at: number): number {
  let i = at;
  while (" \n\r\t".includes(json[i] ?? "x")) i++;
  return i;
}

function endOfValue(json: string, at: number): number {
  let i = at;
  let depth = 0;
  do {
    const character = json[i];
    if (character === "{" || character === "[") depth++;
    if (character === "}" || character === "]") depth--;
    if (character === '"') i = endOfString(json, i);
    else if (depth === 0 && i === at) i = endOfWord(json, i);
    else i++;
  } while (depth > 0 && i < json.length);
  return i;
}

/** A number, true, false or null. */
function endOfWord(json: string, at: number): number {
  let i = at;
  while (!", \n\r\t]}".includes(json[i] ?? ",")) i++;
  return i;
}

/** @param at where its first quote is */
function endOfString(json: string, at: number): number {
  for (let quote = json.indexOf('"', at + 1); quote >= 0; quote = json.indexOf('"', quote + 1)) {
    let first = quote;
    while (json[first - 1] === "\\") first--;
    if ((quote - first) % 2 === 0) return quote + 1;
  }
  return json.length;
}
