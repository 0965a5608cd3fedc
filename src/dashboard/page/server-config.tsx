import { useEffect, useRef, useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { EntryPreviewDocument, ServerDocument, ServerEntryDocument } from "./documents.ts";
import { parsePairs } from "./format.ts";
import { Button, Ready } from "./parts.tsx";

/** A server's entry in the manifest, edited by a form that is made of its schema, or as TOML. */

type Entry = ServerEntryDocument["entry"];

/** The parts of the JSON Schema of an entry from which the form is made. */
interface EntrySchema {
  readonly properties?: Readonly<Record<string, FieldSchema>>;
  readonly oneOf?: readonly {
    readonly required?: readonly string[];
    readonly properties?: Readonly<Record<string, unknown>>;
  }[];
}

interface FieldSchema {
  readonly title?: string;
  readonly description?: string;
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly items?: { readonly type?: string };
  readonly additionalProperties?: { readonly type?: string } | boolean;
  readonly anyOf?: readonly FieldSchema[];
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
}

type FieldKind = "text" | "choice" | "lines" | "pairs" | "json";

function fieldKindOf(schema: FieldSchema, value: unknown): FieldKind {
  const { type, items, additionalProperties, anyOf = [] } = schema;
  if (choicesOf(schema) !== undefined) return "choice";
  const isPlainText = (one: unknown): boolean => typeof one === "string" && !/[\r\n]/.test(one);
  if (
    type === "array" &&
    items?.type === "string" &&
    (value === undefined || (Array.isArray(value) && value.every(isPlainText)))
  )
    return "lines";
  if (
    type === "object" &&
    typeof additionalProperties === "object" &&
    additionalProperties.type === "string" &&
    Object.entries(value ?? {}).every(([key, text]) => !/[=\s]/.test(key) && isPlainText(text))
  )
    return "pairs";
  const types = type === undefined ? anyOf.map((one) => one.type) : [type];
  const isPlain = types.some((one) => one === "string" || one === "number" || one === "integer");
  return isPlain && (value === undefined || typeof value !== "object") ? "text" : "json";
}

/** The values among which one is chosen; undefined: any value may be written. */
function choicesOf({
  type,
  enum: values,
  anyOf = [],
}: FieldSchema): readonly unknown[] | undefined {
  if (values !== undefined) return values;
  if (type === "boolean") return [true, false];
  const choices = anyOf.map(choicesOf);
  return choices.length > 0 && choices.every((one) => one !== undefined)
    ? choices.flatMap((one) => one ?? [])
    : undefined;
}

/** The text of a value in its field. */
function textOf(kind: FieldKind, value: unknown): string {
  if (value === undefined) return "";
  if (kind === "lines" && Array.isArray(value)) return value.join("\n");
  if (kind === "pairs" && typeof value === "object" && value !== null)
    return Object.entries(value)
      .map(([name, text]) => `${name}=${String(text)}`)
      .join("\n");
  if (kind === "text" && typeof value === "string") return value;
  if (kind === "text" || kind === "choice") return JSON.stringify(value);
  return JSON.stringify(value, null, 2);
}

/** The value of a field's text; undefined: the key is left out. @throws {SyntaxError} if it must be JSON and is not */
function valueOf(kind: FieldKind, text: string, schema: FieldSchema): unknown {
  if (text.trim() === "") return undefined;
  switch (kind) {
    case "lines":
      return text.trimEnd().split("\n");
    case "pairs":
      return parsePairs(text, "=");
    case "text": {
      const takesNumbers = [schema, ...(schema.anyOf ?? [])].some(
        ({ type }) => type === "number" || type === "integer",
      );
      return takesNumbers && /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : text;
    }
    case "choice":
    case "json":
      return JSON.parse(text) as unknown;
  }
}

/** The keys that an entry of its kind may have: those that the schema allows beside its main key. */
function keysFor(schema: EntrySchema, entry: Entry): readonly string[] {
  const branch = schema.oneOf?.find(({ required = [] }) => required.some((key) => key in entry));
  const all = Object.keys(schema.properties ?? {});
  return all.filter((key) => key in entry || branch?.properties?.[key] !== false);
}

/** Keys that most servers have. Others are shown if they are set, or on request. */
const USUAL = ["command", "package", "args", "env", "cwd", "url", "headers", "title"];

export function ServerConfig({
  server,
  state,
  actions,
}: ViewProps & { readonly server: ServerDocument }) {
  const { name, origin } = server;
  useEffect(() => {
    if (origin === "manifest") actions.editServer(name);
    return () => actions.editServer(undefined);
  }, [name]);
  if (origin !== "manifest")
    return (
      <p key="runtime" class="about">
        This server was added while the hub runs, and is in no manifest. It is gone when the hub
        ends.
      </p>
    );
  const loaded = state.entry?.name === name ? state.entry.loaded : undefined;
  return (
    <Ready
      key="entry"
      of={loaded ?? { kind: "loading" }}
      what="the entry of this server to edit"
      icon="configure"
      draw={(document) => (
        <EntryEditor
          key={document.toml}
          document={document}
          isInvalid={server.lastError?.code === "serverInvalid"}
          state={state}
          actions={actions}
        />
      )}
    />
  );
}

/** Time without a key after which a changed entry is checked, in ms. */
const CHECK_DELAY = 250;

function EntryEditor({
  document: { name, file, entry, toml, schema },
  isInvalid,
  state,
  actions,
}: ViewProps & { readonly document: ServerEntryDocument; readonly isInvalid: boolean }) {
  const [isText, setText] = useState(false);
  const [draft, setDraft] = useState<{ readonly entry: Entry; readonly toml: string }>({
    entry,
    toml,
  });
  const [preview, setPreview] = useState<EntryPreviewDocument | undefined>(undefined);
  const [isSaving, setSaving] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const number = useRef(0);
  useEffect(() => {
    // What is wrong with the entry is marked before anything is changed.
    if (isInvalid) check({ toml });
    return () => clearTimeout(timer.current ?? undefined);
  }, []);

  const check = (edit: { readonly entry: Entry } | { readonly toml: string }): void => {
    clearTimeout(timer.current ?? undefined);
    const own = (number.current ?? 0) + 1;
    number.current = own;
    timer.current = setTimeout(() => {
      void actions.previewEntry(name, edit).then((answer) => {
        if (answer === undefined || number.current !== own) return;
        setPreview(answer);
        setDraft((before) => ({
          entry: "toml" in edit ? (answer.entry ?? before.entry) : edit.entry,
          toml: "toml" in edit ? edit.toml : (answer.toml ?? before.toml),
        }));
      });
    }, CHECK_DELAY);
  };
  const onEntry = (changed: Entry): void => {
    setDraft({ ...draft, entry: changed });
    check({ entry: changed });
  };
  const onToml = (text: string): void => {
    setDraft({ ...draft, toml: text });
    check({ toml: text });
  };
  const problems = preview?.problems ?? [];
  const changes = preview?.toml === undefined ? [] : diffLines(preview.before, preview.toml);
  const isChanged = changes.some(({ kind }) => kind !== "same");
  const isReady = preview?.entry !== undefined && problems.length === 0 && isChanged;
  const save = (): void => {
    if (preview?.entry === undefined) return;
    setSaving(true);
    const body = { entry: preview.entry, persist: true };
    void actions
      .send("PATCH /servers/:name", { params: { name }, body }, `${name} is changed.`)
      .then((isDone) => {
        setSaving(false);
        if (isDone) actions.editServer(name);
      });
  };
  const reset = (): void => {
    number.current = (number.current ?? 0) + 1;
    clearTimeout(timer.current ?? undefined);
    setDraft({ entry, toml });
    setPreview(undefined);
  };
  return (
    <div class="entry-editor" data-scheme={state.connection.kind}>
      <div class="pair">
        <p class="about break">
          In <span class="mono">{file}</span>. What may be a secret is shown as •••; it stays as it
          is.
        </p>
        <div class="tabs" role="group" aria-label="How to edit">
          {[false, true].map((asText) => (
            <button
              key={asText ? "toml" : "form"}
              type="button"
              aria-pressed={isText === asText ? "true" : "false"}
              onClick={() => setText(asText)}
            >
              {asText ? "TOML" : "Form"}
            </button>
          ))}
        </div>
      </div>
      <div class="columns">
        <div>
          {isText ? (
            <TomlEditor
              key="toml"
              name={name}
              text={draft.toml}
              problems={problems}
              onInput={onToml}
            />
          ) : (
            <EntryForm
              key="form"
              entry={draft.entry}
              schema={schema}
              problems={problems}
              onChange={onEntry}
            />
          )}
        </div>
        <section class="card panel preview" aria-labelledby="preview-title">
          <h2 id="preview-title">{problems.length > 0 ? "What is wrong" : "What will change"}</h2>
          <div role="status">
            {problems.length > 0 ? (
              <ul key="problems" class="plain">
                {problems.map(({ path, message, line, column }, at) => (
                  <li key={at} class="bad">
                    {line !== undefined && (
                      <span key="line" class="mono about">
                        line {line}
                        {column === undefined ? "" : `:${column}`}{" "}
                      </span>
                    )}
                    {path !== "" && <strong key="path">{path} </strong>}
                    <span class="outcome">{message}</span>
                  </li>
                ))}
              </ul>
            ) : isChanged ? (
              <Diff key="diff" lines={changes} />
            ) : (
              <p key="none" class="about">
                Nothing is changed yet.
              </p>
            )}
          </div>
          {isReady && (
            <p key="restart" class="about">
              The server is restarted if the change needs it.
            </p>
          )}
          <p class="actions">
            <Button
              kind="primary"
              text={isSaving ? "Saving…" : "Save"}
              onPress={save}
              isDisabled={!isReady || isSaving}
            />
            <Button text="Discard" onPress={reset} isDisabled={preview === undefined} />
          </p>
        </section>
      </div>
    </div>
  );
}

function EntryForm({
  entry,
  schema,
  problems,
  onChange,
}: {
  readonly entry: Entry;
  readonly schema: EntrySchema;
  readonly problems: EntryPreviewDocument["problems"];
  readonly onChange: (entry: Entry) => void;
}) {
  const keys = keysFor(schema, entry);
  const isUsual = (key: string): boolean => key in entry || USUAL.includes(key);
  // A key that is being edited stays where it is, even when its field becomes empty.
  const [first] = useState(() => keys.filter(isUsual));
  const others = keys.filter((key) => !first.includes(key));
  const field = (key: string) => (
    <EntryField
      key={key}
      name={key}
      schema={schema.properties?.[key] ?? {}}
      value={entry[key]}
      problem={
        problems.find(
          ({ path }) => path === key || path.startsWith(`${key}.`) || path.startsWith(`${key}[`),
        )?.message
      }
      onChange={(value) => {
        const { [key]: _, ...rest } = entry;
        onChange(value === undefined ? rest : { ...entry, [key]: value });
      }}
    />
  );
  return (
    <form class="flow" novalidate onSubmit={(event: Event) => event.preventDefault()}>
      {first.filter((key) => keys.includes(key)).map(field)}
      <details>
        <summary>More settings ({others.length})</summary>
        <div class="flow">{others.map(field)}</div>
      </details>
    </form>
  );
}

function EntryField({
  name,
  schema,
  value,
  problem,
  onChange,
}: {
  readonly name: string;
  readonly schema: FieldSchema;
  readonly value: unknown;
  readonly problem: string | undefined;
  readonly onChange: (value: unknown) => void;
}) {
  const [kind] = useState(() => fieldKindOf(schema, value));
  const [text, setText] = useState(() => textOf(kind, value));
  const [isInvalid, setInvalid] = useState(false);
  const id = `entry-${name}`;
  const onInput = (input: string): void => {
    setText(input);
    try {
      const changed = valueOf(kind, input, schema);
      setInvalid(false);
      onChange(changed);
    } catch {
      setInvalid(true);
    }
  };
  const onEvent = ({ target }: Event): void => onInput((target as HTMLInputElement).value);
  const shown = isInvalid ? "This is not valid JSON." : problem;
  const common = {
    id,
    "aria-describedby": `${id}-about`,
    "aria-invalid": shown === undefined ? undefined : ("true" as const),
  };
  const [example] = schema.examples ?? [];
  return (
    <div class="field" data-key={name}>
      <label for={id}>
        {schema.title ?? name} <span class="mono about">{name}</span>
      </label>
      {kind === "choice" ? (
        <select key="choice" {...common} onChange={onEvent}>
          <option value="">
            {schema.default === undefined ? "–" : `default (${JSON.stringify(schema.default)})`}
          </option>
          {(choicesOf(schema) ?? []).map((one) => {
            const choice = JSON.stringify(one);
            return (
              <option key={choice} value={choice} selected={choice === text}>
                {typeof one === "string" ? one : choice}
              </option>
            );
          })}
        </select>
      ) : kind === "text" ? (
        <input
          key="text"
          {...common}
          type="text"
          value={text}
          placeholder={typeof example === "string" ? example : ""}
          spellcheck={false}
          autocomplete="off"
          onInput={onEvent}
        />
      ) : (
        <textarea
          key="lines"
          {...common}
          class="mono"
          rows={Math.min(12, Math.max(2, text.split("\n").length))}
          placeholder={
            kind === "lines" ? "one on each line" : kind === "pairs" ? "NAME=value" : "JSON"
          }
          spellcheck={false}
          value={text}
          onInput={onEvent}
        />
      )}
      <p id={`${id}-about`} class={shown === undefined ? "about" : "about bad"}>
        {shown ??
          [schema.description, kind === "lines" ? "One on each line." : ""]
            .filter(Boolean)
            .join(" ")}
      </p>
    </div>
  );
}

/** A text field in which the lines that have a problem are marked. */
function TomlEditor({
  name,
  text,
  problems,
  onInput,
}: {
  readonly name: string;
  readonly text: string;
  readonly problems: EntryPreviewDocument["problems"];
  readonly onInput: (text: string) => void;
}) {
  const marks = useRef<HTMLDivElement>(null);
  const bad = new Set(problems.map(({ line }) => line));
  const lines = text.split("\n");
  const onScroll = ({ target }: Event): void => {
    const { scrollTop } = target as HTMLTextAreaElement;
    if (marks.current !== null) marks.current.style.top = `${-scrollTop}px`;
  };
  return (
    <div class="editor card">
      <div class="marks" ref={marks} aria-hidden="true">
        {lines.map((_, at) => (
          <span key={at} class={bad.has(at + 1) ? "bad" : ""}>
            {at + 1}
          </span>
        ))}
      </div>
      <textarea
        class="mono"
        aria-label={`The entry of ${name}, as TOML`}
        aria-invalid={problems.length > 0 ? "true" : undefined}
        rows={Math.min(24, Math.max(8, lines.length + 1))}
        wrap="off"
        spellcheck={false}
        value={text}
        onInput={({ target }: Event) => onInput((target as HTMLTextAreaElement).value)}
        onScroll={onScroll}
      />
    </div>
  );
}

/** A line of a text before or after a change. */
export interface DiffLine {
  readonly kind: "same" | "added" | "removed";
  readonly text: string;
}

/** The lines of two short texts: those that both have, and those that were removed and added. */
export function diffLines(before: string, after: string): readonly DiffLine[] {
  const split = (text: string): readonly string[] => text.replace(/\n$/, "").split("\n");
  const [a, b] = [split(before), split(after)];
  // Lengths of the longest common sequences of the rests from each pair of lines on.
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  const at = (i: number, j: number): number => lengths[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--) {
      const row = lengths[i];
      if (row !== undefined)
        row[j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i] ?? "" });
      i++;
      j++;
    } else if (i < a.length && (j >= b.length || at(i + 1, j) >= at(i, j + 1)))
      lines.push({ kind: "removed", text: a[i++] ?? "" });
    else lines.push({ kind: "added", text: b[j++] ?? "" });
  }
  return lines;
}

const SIGNS = { same: " ", added: "+", removed: "−" } as const;

export function Diff({ lines }: { readonly lines: readonly DiffLine[] }) {
  return (
    <pre class="diff" tabindex={0} aria-label="The changes">
      {lines.map(({ kind, text }, at) => (
        <span key={at} class={kind}>
          {SIGNS[kind]} {text}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}
