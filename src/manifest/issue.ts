import { describeValue, type UnplacedProblem, type KeyPath } from "./problems.ts";

/** An issue of a Standard Schema of any library. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: unknown })[] | undefined;
}

/** An issue of valibot, of any copy of it. */
interface ValibotIssue extends SchemaIssue {
  readonly kind: "schema" | "validation" | "transformation";
  readonly type: string;
  readonly input: unknown;
  readonly expected: string | null;
  /** The value itself, or a measure of it. */
  readonly received: string;
}

export function pathOfIssue({ path = [] }: SchemaIssue): KeyPath {
  return path.map((step) => {
    const key = typeof step === "object" ? step.key : step;
    return typeof key === "number" || typeof key === "string" ? key : "…";
  });
}

/**
 * @param path of the wrong value
 * @param root the whole value that was checked
 */
export function problemOfIssue(issue: SchemaIssue, path: KeyPath, root: unknown): UnplacedProblem {
  if (!isOfValibot(issue)) {
    const message = hideTexts(issue.message, findValue(root, pathOfIssue(issue)));
    return { path, at: "value", message };
  }
  const { type, message, expected, input } = issue;
  const at = isAboutKey(issue) ? "key" : "value";
  if (at === "key" && type.includes("object")) {
    return { path, at, message: expected === "never" ? "unknown key" : "is missing" };
  }
  const found = describeValue(input, !maySecretBeAt(path));
  const defaultMessage = parseDefaultMessage(issue);
  if (defaultMessage !== undefined) {
    const { label, measure } = defaultMessage;
    if (expected === null) return { path, at, message: "is not allowed" };
    if (measure === undefined) return { path, at, message: `expected ${expected}, found ${found}` };
    return { path, at, message: `expected ${label} ${expected}, found ${measure}` };
  }
  // toolmux's schemas state what was expected; others may have whole sentences.
  if (/^[A-Z]|[.!?]$/.test(message)) return { path, at, message: hideTexts(message, input) };
  return { path, at, message: hideTexts(`expected ${message}`, input) + `, found ${found}` };
}

function isOfValibot(issue: SchemaIssue): issue is ValibotIssue {
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
function parseDefaultMessage({ message, received, input }: ValibotIssue) {
  if (!message.endsWith(`eceived ${received}`)) return undefined;
  const label = /^Invalid ([\w ]+): /.exec(message)?.[1];
  const isMeasure = /^\d+$/.test(received) && typeof input !== "number";
  return label === undefined ? undefined : { label, measure: isMeasure ? received : undefined };
}

/** Keys whose values are never shown, because they may contain secrets. */
const SECRET_KEYS = new Set<unknown>(
  "command args env cwd url headers oauth keyFile options httpToken".split(" "),
);

function maySecretBeAt(path: KeyPath): boolean {
  return path.some((key) => SECRET_KEYS.has(key));
}

/** The shortest text that is hidden, in characters: shorter ones occur everywhere. */
const MIN_HIDDEN_LENGTH = 6;

/** Replaces texts of the value in a message of another library. */
function hideTexts(message: string, value: unknown): string {
  if (typeof value === "string")
    return value.length < MIN_HIDDEN_LENGTH ? message : message.replaceAll(value, "•••");
  if (typeof value !== "object" || value === null) return message;
  return Object.values(value).reduce<string>(hideTexts, message);
}

function findValue(root: unknown, path: KeyPath): unknown {
  return path.reduce<unknown>(
    (value, key) =>
      typeof value === "object" && value !== null
        ? (value as Readonly<Record<string, unknown>>)[key]
        : undefined,
    root,
  );
}
