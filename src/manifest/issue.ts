import { describe, type Complaint, type Path } from "./problems.ts";

/** An issue of a Standard Schema of any library. */
export interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: unknown })[] | undefined;
}

/** An issue of valibot, of any copy of it. */
interface ValibotIssue extends Issue {
  readonly kind: "schema" | "validation" | "transformation";
  readonly type: string;
  readonly input: unknown;
  readonly expected: string | null;
  /** The value itself, or a measure of it. */
  readonly received: string;
}

export function pathOf({ path = [] }: Issue): Path {
  return path.map((step) => {
    const key = typeof step === "object" ? step.key : step;
    return typeof key === "number" || typeof key === "string" ? key : "…";
  });
}

/**
 * @param path of the wrong value
 * @param root the whole value that was checked
 */
export function explainIssue(issue: Issue, path: Path, whole: unknown): Complaint {
  if (!isOfValibot(issue)) {
    const message = hideTexts(issue.message, findValue(whole, pathOf(issue)));
    return { path, at: "value", message };
  }
  const { type, message, expected, input } = issue;
  const at = isAboutKey(issue) ? "key" : "value";
  if (at === "key" && type.includes("object")) {
    return { path, at, message: expected === "never" ? "unknown key" : "is missing" };
  }
  const found = describe(input, !isPrivate(path));
  const usual = readUsual(issue);
  if (usual !== undefined) {
    const { label, measure } = usual;
    if (expected === null) return { path, at, message: "is not allowed" };
    if (measure === undefined) return { path, at, message: `expected ${expected}, found ${found}` };
    return { path, at, message: `expected ${label} ${expected}, found ${measure}` };
  }
  // toolmux's schemas state what was expected; others may have whole sentences.
  if (/^[A-Z]|[.!?]$/.test(message)) return { path, at, message: hideTexts(message, input) };
  return { path, at, message: hideTexts(`expected ${message}`, input) + `, found ${found}` };
}

function isOfValibot(issue: Issue): issue is ValibotIssue {
  return "kind" in issue && "type" in issue && "received" in issue && "expected" in issue;
}

/** Whether the issue is about a key: missing, unknown or malformed. */
function isAboutKey({ path = [] }: ValibotIssue): boolean {
  const last = path.at(-1);
  return typeof last === "object" && "origin" in last && last.origin === "key";
}

/**
 * Parses valibot's default message; undefined for a message of the schema. The default one shows the value, which may
 * be a secret.
 */
function readUsual({ message, received, input }: ValibotIssue) {
  if (!message.endsWith(`eceived ${received}`)) return undefined;
  const label = /^Invalid ([\w ]+): /.exec(message)?.[1];
  const isMeasure = /^\d+$/.test(received) && typeof input !== "number";
  return label === undefined ? undefined : { label, measure: isMeasure ? received : undefined };
}

/** Keys whose values are never shown, because they may contain secrets. */
const PRIVATE = new Set<unknown>(
  "command args env cwd url headers oauth keyFile options httpToken".split(" "),
);

function isPrivate(path: Path): boolean {
  return path.some((key) => PRIVATE.has(key));
}

/** The shortest text that is hidden, in characters: shorter ones occur everywhere. */
const LEAST = 6;

/** Replaces texts of the value in a message of another library. */
function hideTexts(message: string, value: unknown): string {
  if (typeof value === "string")
    return value.length < LEAST ? message : message.replaceAll(value, "•••");
  if (typeof value !== "object" || value === null) return message;
  return Object.values(value).reduce<string>(hideTexts, message);
}

function findValue(whole: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (value, key) =>
      typeof value === "object" && value !== null
        ? (value as Readonly<Record<string, unknown>>)[key]
        : undefined,
    whole,
  );
}
