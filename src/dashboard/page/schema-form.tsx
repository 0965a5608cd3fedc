import { useRef, useState } from "hono/jsx/dom";
import type { JsonSchema } from "./documents.ts";

/**
 * A form for the arguments of a tool, made from its input schema. Arguments without a simple field are written as
 * JSON.
 */

type FieldKind = "text" | "number" | "integer" | "boolean" | "choice" | "json";

function fieldKindOf(schema: JsonSchema): FieldKind {
  const types = typeof schema.type === "string" ? [schema.type] : (schema.type ?? []);
  const type = types.find((one) => one !== "null");
  if (schema.enum !== undefined && schema.enum.length > 0) return "choice";
  if (type === "string") return "text";
  if (type === "number" || type === "integer" || type === "boolean") return type;
  return "json";
}

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/**
 * Converts the text of a field to the JSON of one argument; a number keeps its digits.
 * @returns the JSON, or what the text must be (`problem`); undefined if the field is empty
 */
export function readField(
  schema: JsonSchema,
  text: string,
): { readonly json: string } | { readonly problem: string } | undefined {
  const kind = fieldKindOf(schema);
  if (text === "") return undefined;
  if (kind === "text") return { json: JSON.stringify(text) };
  if (kind === "number" || kind === "integer") {
    const isRight = NUMBER.test(text) && (kind === "number" || /^-?\d+$/.test(text));
    return isRight
      ? { json: text }
      : { problem: kind === "integer" ? "a whole number" : "a number" };
  }
  try {
    JSON.parse(text);
    return { json: text };
  } catch {
    return { problem: "valid JSON" };
  }
}

/** The arguments as JSON, or what is wrong with each field. */
export function readArguments(
  schema: JsonSchema,
  texts: Readonly<Record<string, string>>,
): { readonly json: string } | { readonly problems: Readonly<Record<string, string>> } {
  const problems: Record<string, string> = {};
  const members = Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const value = readField(field, texts[name] ?? "");
    if (value === undefined) {
      if (schema.required?.includes(name) === true) problems[name] = "This is required.";
      return [];
    }
    if ("problem" in value) {
      problems[name] = `This must be ${value.problem}.`;
      return [];
    }
    return [`${JSON.stringify(name)}:${value.json}`];
  });
  return Object.keys(problems).length > 0 ? { problems } : { json: `{${members.join(",")}}` };
}

export function SchemaForm({
  schema,
  isRunning,
  onRun,
}: {
  readonly schema: JsonSchema;
  readonly isRunning: boolean;
  readonly onRun: (json: string) => void;
}) {
  const form = useRef<HTMLFormElement>(null);
  const [problems, setProblems] = useState<Readonly<Record<string, string>>>({});
  const fields = Object.entries(schema.properties ?? {});
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    if (form.current === null) return;
    const texts: Record<string, string> = {};
    for (const [name, value] of new FormData(form.current))
      if (typeof value === "string") texts[name] = value;
    const read = readArguments(schema, texts);
    setProblems("problems" in read ? read.problems : {});
    if ("json" in read) onRun(read.json);
  };
  return (
    <form ref={form} class="flow" onSubmit={onSubmit} novalidate>
      {fields.length === 0 && (
        <p key="none" class="about">
          It takes no arguments.
        </p>
      )}
      {fields.map(([name, field]) => (
        <Field
          key={name}
          name={name}
          schema={field}
          isRequired={schema.required?.includes(name) === true}
          problem={problems[name]}
        />
      ))}
      <p class="actions">
        <button type="submit" class="primary" disabled={isRunning}>
          {isRunning ? "Running…" : "Run"}
        </button>
      </p>
    </form>
  );
}

function Field({
  name,
  schema,
  isRequired,
  problem,
}: {
  readonly name: string;
  readonly schema: JsonSchema;
  readonly isRequired: boolean;
  readonly problem: string | undefined;
}) {
  const kind = fieldKindOf(schema);
  const id = `argument-${name}`;
  const initial = schema.default === undefined ? "" : textOf(schema.default, kind);
  const common = {
    id,
    name,
    "aria-describedby": `${id}-about`,
    "aria-invalid": problem === undefined ? undefined : ("true" as const),
    "aria-required": isRequired ? ("true" as const) : undefined,
  };
  return (
    <div class="field">
      <label for={id}>
        <span class="mono">{name}</span> {isRequired ? <em key="required">required</em> : ""}
      </label>
      {kind === "choice" || kind === "boolean" ? (
        <select key="select" {...common}>
          <option value="">–</option>
          {(schema.enum ?? [true, false]).map((value) => {
            const text = JSON.stringify(value);
            return (
              <option key={text} value={text} selected={text === initial}>
                {typeof value === "string" ? value : text}
              </option>
            );
          })}
        </select>
      ) : kind === "json" ? (
        <textarea key="json" {...common} rows={3} spellcheck={false} placeholder="JSON">
          {initial}
        </textarea>
      ) : (
        <input
          key="input"
          {...common}
          type="text"
          inputmode={kind === "text" ? "text" : "decimal"}
          value={initial}
          spellcheck={false}
          autocomplete="off"
        />
      )}
      <p id={`${id}-about`} class={problem === undefined ? "about" : "about bad"}>
        {problem ?? schema.description ?? ""}
      </p>
    </div>
  );
}

function textOf(value: unknown, kind: FieldKind): string {
  return kind === "text" && typeof value === "string" ? value : JSON.stringify(value);
}
