import { describe, type Complaint, type Path } from "./problem.ts";

/** What a schema of any library says of a wrong value. */
export interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: unknown })[] | undefined;
}

/** What valibot says, whichever copy of it. */
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

/** @param path of what is wrong; @param whole all that was checked */
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
  // What our own schemas say is what was expected; others may say a whole sentence.
  if (/^[A-Z]|[.!?]$/.test(message)) return { path, at, message: hideTexts(message, input) };
  return { path, at, message: hideTexts(`expected ${message}`, input) + `, found ${found}` };
}

function isOfValibot(issue: Issue): issue is ValibotIssue {
  return "kind" in issue && "type" in issue && "received" in issue && "expected" in issue;
}

/** Whether a table lacks a key, has one too many, or one of a wrong form. */
function isAboutKey({ path = [] }: ValibotIssue): boolean {
  const last = path.at(-1);
  return typeof last === "object" && "origin" in last && last.origin === "key";
}

/** What valibot says if the schema does not. It shows the value, which may be a secret. */
function readUsual({ message, received, input }: ValibotIssue) {
  if (!message.endsWith(`eceived ${received}`)) return undefined;
  const label = /^Invalid ([\w ]+): /.exec(message)?.[1];
  const isMeasure = /^\d+$/.test(received) && typeof input !== "number";
  return label === undefined ? undefined : { label, measure: isMeasure ? received : undefined };
}

/** Values of these keys are never shown: people put secrets there. */
const PRIVATE = new Set<unknown>(
  "command args env cwd url headers oauth keyFile options httpToken".split(" "),
);

function isPrivate(path: Path): boolean {
  return path.some((key) => PRIVATE.has(key));
}

/** Shorter texts stand everywhere: hiding them hides nothing and garbles the rest. */
const LEAST = 6;

/** A message of others without the texts of the value that it is about. */
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
