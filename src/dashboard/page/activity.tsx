import { useState } from "hono/jsx/dom";
import type { ViewProps } from "./app.tsx";
import { clientOf, outcomeOf } from "./calls.tsx";
import type { ClientDocuments, Decision, EndedCall } from "./documents.ts";
import { formatBytes, formatDuration, formatTime, matchesWords, toCsv } from "./format.ts";
import {
  Button,
  Choice,
  Drawer,
  Empty,
  Facts,
  Header,
  Ready,
  Rows,
  SearchField,
  useNarrow,
} from "./parts.tsx";
import { valueOf } from "./state.ts";

/** A row of the Activity view: a call that has ended, or a decision about a call that needed an approval. */
interface Entry {
  readonly key: string;
  readonly at: number;
  readonly server: string;
  readonly tool: string;
  readonly name: string;
  readonly client: string;
  readonly outcome: string;
  readonly tone: "good" | "bad" | "quiet";
  readonly call: EndedCall | undefined;
  readonly decision: Decision | undefined;
}

const SPANS = { all: Infinity, "5m": 300_000, "1h": 3_600_000 } as const;

type Span = keyof typeof SPANS;

function entriesOf(
  calls: readonly EndedCall[],
  decisions: readonly Decision[],
  clients: ClientDocuments,
): readonly Entry[] {
  const ended = calls.map((call): Entry => {
    const { text, tone } = outcomeOf(call);
    const { server, tool, name, startedAt } = call;
    const client = clientOf(call, clients);
    return {
      key: `call ${call.call}`,
      at: startedAt,
      server,
      tool,
      name,
      client,
      outcome: text,
      tone,
      call,
      decision: undefined,
    };
  });
  const decided = decisions.map((decision, at): Entry => {
    const { server, tool, name, client } = decision;
    const isDenied = decision.decision === "deny";
    return {
      key: `decision ${decision.at} ${at}`,
      at: decision.at,
      server,
      tool,
      name,
      client: clientOf({ clientName: "", ...(client !== undefined && { client }) }, clients),
      outcome: isDenied ? "denied" : `allowed: ${decision.decision}`,
      tone: isDenied ? "bad" : "good",
      call: undefined,
      decision,
    };
  });
  return [...ended, ...decided].toSorted((a, b) => b.at - a.at);
}

export function ActivityView({ state, actions }: ViewProps) {
  const { route } = state;
  const initial = route.item?.startsWith("client:") === true ? route.item.slice(7) : "";
  const [words, setWords] = useState("");
  const [server, setServer] = useState("");
  const [client, setClient] = useState(initial);
  const [outcome, setOutcome] = useState("");
  const [span, setSpan] = useState<Span>("all");
  const [chosen, setChosen] = useState<Entry | undefined>(undefined);
  const isNarrow = useNarrow();
  const all = entriesOf(valueOf(state.activity)?.calls ?? [], state.decisions, state.clients);
  const entries = all.filter(
    (entry) =>
      (server === "" || entry.server === server) &&
      (client === "" || entry.client === client) &&
      (outcome === "" || entry.tone === outcome) &&
      state.now - entry.at < SPANS[span] &&
      matchesWords(words, entry.tool, entry.name),
  );
  const servers = [...new Set(all.map((entry) => entry.server))].toSorted();
  const clients = [...new Set([...all.map((entry) => entry.client), client])]
    .filter((name) => name !== "")
    .toSorted();
  const choices = (names: readonly string[]): readonly (readonly [string, string])[] => [
    ["", "all"],
    ...names.map((name) => [name, name] as const),
  ];
  const save = (type: "json" | "csv"): void => {
    download(`toolmux-activity.${type}`, type === "json" ? toJson(entries) : csvOf(entries));
    actions.notify(`${entries.length} rows were saved.`);
  };
  return (
    <div>
      <Header title="Activity" about="The last 1,000 calls of this hub, and decisions about them.">
        <Button text="Save JSON" onPress={() => save("json")} />
        <Button text="Save CSV" onPress={() => save("csv")} />
      </Header>
      <div class="filters" role="search" aria-label="Filter the activity">
        <SearchField label="Search tools" value={words} onInput={setWords} />
        <Choice label="Server" value={server} options={choices(servers)} onChoose={setServer} />
        <Choice label="Client" value={client} options={choices(clients)} onChoose={setClient} />
        <Choice
          label="Outcome"
          value={outcome}
          options={[
            ["", "all"],
            ["good", "answered"],
            ["bad", "failed"],
            ["quiet", "cancelled"],
          ]}
          onChoose={setOutcome}
        />
        <Choice
          label="Time"
          value={span}
          options={[
            ["all", "all"],
            ["5m", "last 5 minutes"],
            ["1h", "last hour"],
          ]}
          onChoose={setSpan}
        />
      </div>
      <Ready
        of={state.activity}
        what="the activity"
        icon="activity"
        draw={() =>
          entries.length === 0 ? (
            <Empty
              key="none"
              icon="activity"
              title={all.length === 0 ? "No call has ended yet" : "Nothing matches"}
            >
              {all.length === 0
                ? "What clients call is listed here. A restart of the hub empties it."
                : "Choose other filters."}
            </Empty>
          ) : (
            <Rows
              key="rows"
              items={entries}
              height={isNarrow ? 56 : 36}
              label="Activity"
              class="card"
              keyOf={({ key }) => key}
              draw={(entry) => (
                <button type="button" class="ended" onClick={() => setChosen(entry)}>
                  <time>{formatTime(entry.at)}</time>
                  <span class="mono clip">
                    {entry.server} · {entry.tool}
                  </span>
                  <span class="about clip">{entry.client}</span>
                  <span class={`outcome ${entry.tone}`}>{entry.outcome}</span>
                  <span class="number">
                    {entry.call === undefined ? "" : formatDuration(entry.call.duration)}
                  </span>
                  <span class="number size">
                    {entry.call?.resultSize === undefined ? "" : formatBytes(entry.call.resultSize)}
                  </span>
                </button>
              )}
            />
          )
        }
      />
      {chosen !== undefined && (
        <Drawer key={chosen.key} title={chosen.name} onClose={() => setChosen(undefined)}>
          <Facts
            of={{
              Server: chosen.server,
              "Own name": chosen.tool,
              Client: chosen.client,
              At: new Date(chosen.at).toISOString(),
              Outcome: chosen.outcome,
              By: chosen.decision?.by,
              Duration: chosen.call && formatDuration(chosen.call.duration),
              "Size of the request":
                chosen.call?.requestSize && formatBytes(chosen.call.requestSize),
              "Size of the result": chosen.call?.resultSize && formatBytes(chosen.call.resultSize),
              "Part of call": chosen.call?.parentCall,
            }}
          />
          <p class="about">
            The hub does not keep arguments and results. The plugin audit-log can write them to a
            file.
          </p>
        </Drawer>
      )}
    </div>
  );
}

function toJson(entries: readonly Entry[]): string {
  const documents = entries.map(({ call, decision }) => call ?? decision);
  return `${JSON.stringify(documents, null, 2)}\n`;
}

function csvOf(entries: readonly Entry[]): string {
  const columns = [
    "time",
    "server",
    "tool",
    "name",
    "client",
    "outcome",
    "ms",
    "request bytes",
    "result bytes",
  ];
  return toCsv(
    columns,
    entries.map(({ at, server, tool, name, client, outcome, call }) => [
      new Date(at).toISOString(),
      server,
      tool,
      name,
      client,
      outcome,
      call?.duration,
      call?.requestSize,
      call?.resultSize,
    ]),
  );
}

function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text]));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
