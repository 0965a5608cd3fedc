import type { ViewProps } from "./actions.ts";
import type { ApprovalDocument, ToolNote } from "./documents.ts";
import { count, formatElapsed, formatTokens } from "./format.ts";
import { FilteredList, type ListFilter, nameOptions } from "./filtered-list.tsx";
import { Button, copyText, Drawer, Facts, Header, Ready } from "./parts.tsx";
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
}

/** The tools that clients see, then the hidden tools, each with the notes about it. */
function rowsOf(tools: DashboardState["tools"]): readonly Row[] {
  if (tools.kind !== "ready") return [];
  const notes = new Map<string, ToolNote[]>();
  for (const note of tools.value.notes) {
    const key = `${note.server}\n${note.tool}`;
    notes.set(key, [...(notes.get(key) ?? []), note]);
  }
  const shown = tools.value.tools.map(({ name, server, tool, description, tokens }): Row => {
    const key = `${server}\n${tool}`;
    const own = notes.get(key) ?? [];
    notes.delete(key);
    return { key: name, name, server, tool, description, notes: own, tokens };
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
    };
  });
  return [...shown, ...hidden];
}

export function ToolsView({ state, actions }: ViewProps) {
  const all = rowsOf(state.tools);
  const shown = all.filter(({ name }) => name !== undefined).length;
  const filters: readonly ListFilter<Row>[] = [
    {
      label: "Server",
      options: nameOptions(serversOf(state).map(({ name }) => name)),
      matches: ({ server }, name) => server === name,
    },
    {
      label: "Show",
      options: [
        ["", "all"],
        ["shown", "shown"],
        ["hidden", "hidden"],
      ],
      matches: ({ name }, which) => (which === "shown") === (name !== undefined),
    },
  ];
  return (
    <div>
      <Header
        title="Tools"
        about={`${count(shown, "tool")} that clients see${all.length > shown ? `, ${all.length - shown} hidden` : ""}`}
      />
      <Ready
        of={state.tools}
        what="a list of tools"
        icon="tools"
        draw={() => (
          <FilteredList
            items={all}
            label="Tools"
            icon="tools"
            height={60}
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
              "The tools of servers appear here when the servers are connected.",
            ]}
            noMatch={["No tool matches", "Search for other words, or choose another server."]}
            draw={(row) => <ToolRow row={row} />}
          />
        )}
      />
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

function ToolRow({ row }: { readonly row: Row }) {
  const { name, server, tool, description, notes, tokens } = row;
  return (
    <div class="row tool" data-tool={name ?? tool}>
      <div class="stack">
        {name === undefined ? (
          <span key="own" class="about name mono clip">
            {tool}
          </span>
        ) : (
          <a key="name" class="name mono clip" href={routeTo("tools", name)}>
            {name}
          </a>
        )}
        <span class="about clip">
          {name === undefined ? `hidden tool of ${server}` : `${tool} of ${server}`}
        </span>
      </div>
      <span class={notes.length > 0 ? "about busy clip wide" : "about two-lines wide"}>
        {notes.length > 0 ? notes.map(({ text }) => text).join("; ") : (description ?? "")}
      </span>
      <span class="number about">
        {tokens === undefined ? "" : `≈ ${formatTokens(tokens)} tokens`}
      </span>
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
          const { description, inputSchema = {}, annotations = {} } = value.definition;
          const hints = Object.entries(annotations).filter(([, hint]) => hint === true);
          return (
            <div class="flow">
              <p class="pre">{description ?? ""}</p>
              <Facts
                of={{
                  Server: value.server,
                  "Own name": value.tool,
                  Hints: hints.map(([hint]) => hint.replace(/Hint$/, "")).join(", "),
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
                    <pre tabindex={0}>{run.answer}</pre>
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
