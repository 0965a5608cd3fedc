import { useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import { clientOf, EndedCells, outcomeOf } from "./calls.tsx";
import type { ClientDocuments, Decision, EndedCall } from "./documents.ts";
import { count, formatBytes, formatDuration, toCsv } from "./format.ts";
import { FilteredList, type ListFilter, nameOptions } from "./filtered-list.tsx";
import { Button, Drawer, Facts, Header, Ready, useNarrow } from "./parts.tsx";
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

/** The spans of the filter of time, in ms. */
const SPANS: Readonly<Record<string, number>> = { "5m": 300_000, "1h": 3_600_000 };

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
      client: clientOf(
        { clientName: decision.clientName, ...(client !== undefined && { client }) },
        clients,
      ),
      outcome: isDenied ? "denied" : `allowed: ${decision.decision}`,
      tone: isDenied ? "quiet" : "good",
      call: undefined,
      decision,
    };
  });
  return [...ended, ...decided].toSorted((a, b) => b.at - a.at);
}

export function ActivityView({ state, actions }: ViewProps) {
  const { route } = state;
  const initial = route.item?.startsWith("client:") === true ? route.item.slice(7) : "";
  const [chosen, setChosen] = useState<Entry | undefined>(undefined);
  const isNarrow = useNarrow();
  const all = entriesOf(valueOf(state.activity)?.calls ?? [], state.decisions, state.clients);
  const filters: readonly ListFilter<Entry>[] = [
    {
      label: "Server",
      options: nameOptions(all.map((entry) => entry.server)),
      matches: (entry, name) => entry.server === name,
    },
    {
      label: "Client",
      options: nameOptions([...all.map((entry) => entry.client), initial]),
      initial,
      matches: (entry, name) => entry.client === name,
    },
    {
      label: "Outcome",
      options: [
        ["", "all"],
        ["good", "answered"],
        ["bad", "failed"],
        ["quiet", "cancelled or not allowed"],
      ],
      matches: (entry, tone) => entry.tone === tone,
    },
    {
      label: "Time",
      options: [
        ["", "all"],
        ["5m", "last 5 minutes"],
        ["1h", "last hour"],
      ],
      matches: (entry, span) => state.now - entry.at < (SPANS[span] ?? Infinity),
    },
  ];
  const save = (type: "json" | "csv", entries: readonly Entry[]): void => {
    download(`toolmux-activity.${type}`, type === "json" ? toJson(entries) : csvOf(entries));
    actions.notify(`Saved ${count(entries.length, "row")}.`);
  };
  return (
    <div>
      <Header
        title="Activity"
        about="The last 1,000 calls of this hub, and decisions about them."
      />
      <Ready
        of={state.activity}
        what="the activity"
        icon="activity"
        draw={() => (
          <FilteredList
            items={all}
            label="Activity"
            icon="activity"
            height={isNarrow ? 56 : 36}
            keyOf={({ key }) => key}
            search={{ label: "Search tools", of: ({ tool, name }) => [tool, name] }}
            filters={filters}
            empty={[
              "No call has ended yet",
              "What clients call is listed here. A restart of the hub empties it.",
            ]}
            noMatch={["Nothing matches", "Choose other filters."]}
            controls={(shown) => (
              <span class="actions" key="save">
                <Button text="Save JSON" onPress={() => save("json", shown)} />
                <Button text="Save CSV" onPress={() => save("csv", shown)} />
              </span>
            )}
            draw={(entry) => (
              <button type="button" class="row ended" onClick={() => setChosen(entry)}>
                <EndedCells
                  at={entry.at}
                  what={`${entry.server} · ${entry.tool}`}
                  client={entry.client}
                  outcome={{ text: entry.outcome, tone: entry.tone }}
                  duration={entry.call?.duration}
                  size={entry.call?.resultSize}
                />
              </button>
            )}
          />
        )}
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
