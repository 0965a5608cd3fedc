import type { ViewProps } from "./actions.ts";
import { useState } from "hono/jsx/dom";
import type { ApprovalDocument, ToolDocument, ToolNote } from "./documents.ts";
import { count, formatElapsed, formatTokens } from "./format.ts";
import { FilteredList, type ListFilter, nameOptions } from "./filtered-list.tsx";
import { Button, copyText, Drawer, Facts, Header, Ready, Rows, useNarrow } from "./parts.tsx";
import { SchemaForm } from "./schema-form.tsx";
import { Question } from "./question.tsx";
import { type DashboardState, questionOfRun, routeTo, serversOf, type ToolRun } from "./state.ts";

interface Row {
  readonly key: string;
  readonly server: string;
  readonly tool: string;
  /** The name that clients see; undefined if the tool is hidden. */
  readonly name: string | undefined;
  readonly description: string | undefined;
  readonly notes: readonly ToolNote[];
  readonly tokens: number | undefined;
  readonly hints: ToolDocument["hints"];
}

/** The tools that clients see, then the hidden tools, each with the notes about it. */
function rowsOf(tools: DashboardState["tools"]): readonly Row[] {
  if (tools.kind !== "ready") return [];
  const notes = new Map<string, ToolNote[]>();
  for (const note of tools.value.notes) {
    const key = `${note.server}\n${note.tool}`;
    notes.set(key, [...(notes.get(key) ?? []), note]);
  }
  const shown = tools.value.tools.map(({ name, server, tool, description, tokens, hints }): Row => {
    const key = `${server}\n${tool}`;
    const own = notes.get(key) ?? [];
    notes.delete(key);
    return { key, name, server, tool, description, notes: own, tokens, hints };
  });
  const hidden = [...notes.values()].map((own): Row => {
    const [{ server, tool } = { server: "", tool: "" }] = own;
    return {
      key: `${server}\n${tool}`,
      name: undefined,
      server,
      tool,
      description: undefined,
      notes: own,
      tokens: undefined,
      hints: undefined,
    };
  });
  // A tool stays at its place when a person hides it.
  return [...Map.groupBy([...shown, ...hidden], ({ server }) => server).values()].flatMap((own) =>
    own.toSorted((a, b) => (a.tool < b.tool ? -1 : a.tool > b.tool ? 1 : 0)),
  );
}

/** A row, or the heading of the rows of a server. */
type Line =
  | { readonly kind: "tool"; readonly row: Row }
  | { readonly kind: "server"; readonly server: string; readonly rows: readonly Row[] };

/** The rows below the headings of their servers. @param closed the servers whose rows are not shown */
function linesOf(rows: readonly Row[], closed: ReadonlySet<string>): readonly Line[] {
  return [...Map.groupBy(rows, ({ server }) => server)].flatMap(([server, own]): Line[] => [
    { kind: "server", server, rows: own },
    ...(closed.has(server) ? [] : own.map((row): Line => ({ kind: "tool", row }))),
  ]);
}

export function ToolsView({ state, actions }: ViewProps) {
  const all = rowsOf(state.tools);
  const shown = all.filter(({ name }) => name !== undefined).length;
  return (
    <div>
      <Header
        title="Tools"
        about={`${count(shown, "tool")} that clients see${all.length > shown ? `, ${all.length - shown} hidden` : ""}`}
      />
      <ToolTable state={state} actions={actions} server={undefined} />
      {state.tool !== undefined && (
        <ToolDrawer
          key={state.tool.name}
          tool={state.tool}
          run={state.toolRuns.get(state.tool.name)}
          question={questionOfRun(state, state.tool.name)}
          now={state.now}
          row={all.find(({ name }) => name === state.tool?.name)}
          actions={actions}
        />
      )}
    </div>
  );
}

const ROW_HEIGHT = 60;

/** The tools of one server, or of all, below the headings of their servers. */
export function ToolTable({
  state,
  actions,
  server: only,
}: ViewProps & { readonly server: string | undefined }) {
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const isNarrow = useNarrow();
  const all = rowsOf(state.tools).filter(({ server }) => only === undefined || server === only);
  const servers = new Map(serversOf(state).map((server) => [server.name, server]));
  const filters: readonly ListFilter<Row>[] = [
    ...(only === undefined
      ? [
          {
            label: "Server",
            options: nameOptions(servers.keys()),
            matches: ({ server }: Row, name: string) => server === name,
          },
        ]
      : []),
    {
      label: "Show",
      options: [
        ["", "all"],
        ["shown", "shown"],
        ["hidden", "hidden"],
      ],
      matches: ({ name }, which) => (which === "shown") === (name !== undefined),
    },
    {
      label: "Effect",
      options: [
        ["", "any"],
        ["reads", "only reads"],
        ["changes", "may change something"],
        ["open world", "open world"],
      ],
      matches: (row, effect) =>
        effect === "changes"
          ? row.name !== undefined && row.hints?.readOnly !== true
          : effectsOf(row).some(({ text }) => text === effect),
    },
  ];
  const toggle = (server: string): void => {
    const changed = new Set(closed);
    if (!changed.delete(server)) changed.add(server);
    setClosed(changed);
  };
  return (
    <Ready
      of={state.tools}
      what="a list of tools"
      icon="tools"
      draw={() => (
        <FilteredList
          items={all}
          label="Tools"
          icon="tools"
          height={ROW_HEIGHT}
          keyOf={({ key }) => key}
          search={{
            label: "Search tools",
            of: ({ name, tool, server, description }) => [name, tool, server, description],
            onWords: (words) => {
              if (words.trim() !== "") actions.findTools(words);
            },
            found: (words) => (state.found?.words === words ? state.found.names : []),
          }}
          filters={filters}
          empty={[
            "No tools yet",
            only === undefined
              ? "The tools of servers appear here when the servers are connected."
              : "The tools of this server appear here when it is connected.",
          ]}
          noMatch={["No tool matches", "Search for other words, or choose other filters."]}
          list={(shown) => (
            <Rows
              items={
                only === undefined
                  ? linesOf(shown, closed)
                  : shown.map((row): Line => ({ kind: "tool", row }))
              }
              height={ROW_HEIGHT}
              label="Tools"
              class="card"
              keyOf={(line) => (line.kind === "tool" ? line.row.key : `server ${line.server}`)}
              draw={(line) =>
                line.kind === "tool" ? (
                  <ToolRow
                    row={line.row}
                    canHide={servers.get(line.row.server)?.origin === "manifest"}
                    isNarrow={isNarrow}
                    actions={actions}
                  />
                ) : (
                  <ServerHeading
                    line={line}
                    title={servers.get(line.server)?.title ?? line.server}
                    isOpen={!closed.has(line.server)}
                    onToggle={() => toggle(line.server)}
                  />
                )
              }
            />
          )}
        />
      )}
    />
  );
}

function ServerHeading({
  line: { server, rows },
  title,
  isOpen,
  onToggle,
}: {
  readonly line: Extract<Line, { readonly kind: "server" }>;
  readonly title: string;
  readonly isOpen: boolean;
  readonly onToggle: () => void;
}) {
  const shown = rows.filter(({ name }) => name !== undefined).length;
  const tokens = rows.reduce((sum, row) => sum + (row.tokens ?? 0), 0);
  return (
    <div class="row group">
      <button
        type="button"
        class="group-toggle"
        aria-expanded={isOpen ? "true" : "false"}
        onClick={onToggle}
      >
        <span class="arrow" aria-hidden="true">
          {isOpen ? "▾" : "▸"}
        </span>
        <strong>{title}</strong>
        <span class="about">
          {count(shown, "tool")}
          {rows.length > shown ? `, ${rows.length - shown} hidden` : ""}
        </span>
      </button>
      <span class="about number">{tokens === 0 ? "" : `≈ ${formatTokens(tokens)} tokens`}</span>
      <a href={routeTo("servers", server)}>Open</a>
    </div>
  );
}

/** What the server says that a tool does, as badges. `about` follows "The server says that this tool". */
function effectsOf({
  hints = {},
}: Row): readonly { readonly text: string; readonly tone: string; readonly about: string }[] {
  const { readOnly, destructive, openWorld } = hints;
  return [
    ...(readOnly === true
      ? [{ text: "reads", tone: "", about: "changes nothing" }]
      : readOnly === false || destructive === true
        ? [
            {
              text: destructive === false ? "adds" : "changes",
              tone: "busy-tone",
              about:
                destructive === false ? "only adds something" : "may change or delete something",
            },
          ]
        : []),
    ...(openWorld === true
      ? [
          {
            text: "open world",
            tone: "",
            about: "reaches other systems",
          },
        ]
      : []),
  ];
}

function ToolRow({
  row,
  canHide,
  isNarrow,
  actions,
}: {
  readonly row: Row;
  readonly canHide: boolean;
  readonly isNarrow: boolean;
  readonly actions: ViewProps["actions"];
}) {
  const { name, server, tool, description, notes, tokens } = row;
  const isHidden = name === undefined;
  return (
    <div
      class={canHide && !isNarrow ? "row tool with-switch" : "row tool"}
      data-tool={name ?? tool}
    >
      <div class="stack">
        {isHidden ? (
          <span key="own" class="about name mono clip">
            {tool}
          </span>
        ) : (
          <a key="name" class="name mono clip" href={routeTo("tools", name)}>
            {name}
          </a>
        )}
        <span class="badges">
          {isHidden && (
            <span key="hidden" class="badge">
              hidden
            </span>
          )}
          {effectsOf(row).map(({ text, tone, about }) => (
            <span
              key={text}
              class={`badge ${tone}`}
              title={`The server says that this tool ${about}.`}
            >
              {text}
            </span>
          ))}
        </span>
      </div>
      <span class={notes.length > 0 ? "about busy two-lines wide" : "about two-lines wide"}>
        {notes.length > 0 ? notes.map(({ text }) => text).join("; ") : (description ?? "")}
      </span>
      <span class="number about">
        {tokens === undefined ? "" : `≈ ${formatTokens(tokens)} tokens`}
      </span>
      {canHide && !isNarrow && (
        <label
          key="switch"
          class="choice"
          title={isHidden ? "Clients do not see it" : "Clients see it"}
        >
          <input
            type="checkbox"
            role="switch"
            checked={!isHidden}
            aria-label={`Show ${tool} of ${server} to clients`}
            onChange={({ target }) =>
              actions.hideTool(server, tool, !(target as HTMLInputElement).checked)
            }
          />
          Shown
        </label>
      )}
    </div>
  );
}

function ToolDrawer({
  tool,
  run,
  question,
  now,
  row,
  actions,
}: {
  readonly tool: NonNullable<DashboardState["tool"]>;
  readonly run: ToolRun | undefined;
  /** The question about the call, if it waits for an approval. */
  readonly question: ApprovalDocument | undefined;
  readonly now: number;
  readonly row: Row | undefined;
  readonly actions: ViewProps["actions"];
}) {
  const { name, definition } = tool;
  return (
    <Drawer title={name} onClose={() => void (location.hash = routeTo("tools"))}>
      <Ready
        of={definition}
        what="this tool"
        icon="tools"
        draw={(value) => {
          const { description, inputSchema = {} } = value.definition;
          return (
            <div class="flow">
              <p class="pre">{description ?? ""}</p>
              <Facts
                of={{
                  Server: value.server,
                  "Own name": value.tool,
                  "The server says that it":
                    row &&
                    effectsOf(row)
                      .map(({ about }) => about)
                      .join(", and "),
                  "Context cost": row?.tokens && `about ${row.tokens} tokens (estimated)`,
                  Notes: row?.notes.map(({ text }) => text).join("; "),
                }}
              />
              <h3>Run it</h3>
              <SchemaForm
                schema={inputSchema}
                isRunning={run?.isRunning === true}
                onRun={(json) => actions.runTool(name, json)}
              />
              <div role="status" aria-live="polite">
                {run?.isRunning === true && (
                  <p key="running" class="pair">
                    <span class={question === undefined ? "about" : "about busy"}>
                      {question === undefined
                        ? `Runs for ${formatElapsed(Math.max(0, now - run.startedAt))}`
                        : "The call waits for you"}
                    </span>
                    <Button
                      text="Cancel"
                      label={`Cancel the call of ${name}`}
                      onPress={() => actions.cancelTool(name)}
                    />
                  </p>
                )}
                {run?.answer !== undefined && (
                  <section key="answer">
                    <h3>Answer</h3>
                    <ToolAnswer answer={run.answer} />
                    <Button
                      text="Copy"
                      onPress={() =>
                        void copyText(run.answer ?? "").then(() => actions.notify("Copied."))
                      }
                    />
                  </section>
                )}
              </div>
              {question !== undefined && (
                <Question key="question" approval={question} now={now} actions={actions} />
              )}
              <details>
                <summary>Its definition</summary>
                <pre tabindex={0}>{JSON.stringify(value.definition, null, 2)}</pre>
              </details>
            </div>
          );
        }}
      />
    </Drawer>
  );
}

/** The texts of a tool's result, if the answer is one; the whole answer as JSON is behind them. */
export function ToolAnswer({ answer }: { readonly answer: string }) {
  const texts = textsOf(answer);
  if (texts === undefined)
    return (
      <pre key="whole" tabindex={0}>
        {answer}
      </pre>
    );
  return (
    <div key="texts" class="flow">
      {texts.isError && (
        <p key="error" class="outcome bad">
          The tool says that this is an error.
        </p>
      )}
      <pre tabindex={0} class={texts.isError ? "bad" : ""}>
        {texts.text}
      </pre>
      {texts.others.length > 0 && (
        <p key="others" class="about">
          It also has {texts.others.join(", ")}.
        </p>
      )}
      <details>
        <summary>As JSON</summary>
        <pre tabindex={0}>{answer}</pre>
      </details>
    </div>
  );
}

/** The text of a tool's result, and what else it has; undefined if the answer is no result with a text. */
export function textsOf(
  answer: string,
):
  | { readonly text: string; readonly others: readonly string[]; readonly isError: boolean }
  | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(answer);
  } catch {
    return undefined;
  }
  if (typeof parsed !== "object" || parsed === null) return undefined;
  const outer = parsed as Readonly<Record<string, unknown>>;
  const inner = outer["result"];
  const result = typeof inner === "object" && inner !== null ? (inner as typeof outer) : outer;
  const { content } = result;
  if (!Array.isArray(content)) return undefined;
  const texts: string[] = [];
  const others: string[] = [];
  for (const part of content as readonly Readonly<Record<string, unknown>>[]) {
    if (part?.["type"] === "text" && typeof part["text"] === "string") texts.push(part["text"]);
    else others.push(`a part of type ${JSON.stringify(part?.["type"] ?? null)}`);
  }
  if (result["structuredContent"] !== undefined) others.push("structured content");
  if (texts.length === 0) return undefined;
  return { text: texts.join("\n\n"), others, isError: result["isError"] === true };
}
