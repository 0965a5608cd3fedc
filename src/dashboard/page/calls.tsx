import { useEffect, useState } from "hono/jsx/dom";
import { nameOfClient } from "../../base/client-name.ts";
import type { Actions, ViewProps } from "./actions.ts";
import type {
  CallDocument,
  ClientDocuments,
  Decision,
  EndedCall,
  KeptCallDocument,
} from "./documents.ts";
import { FilteredList, type ListFilter, nameOptions } from "./filtered-list.tsx";
import {
  count,
  formatBytes,
  formatDateTime,
  formatDuration,
  formatElapsed,
  formatTime,
  type Tone,
  toCsv,
} from "./format.ts";
import { Button, Drawer, Facts, Header, Ready } from "./parts.tsx";
import { type DashboardState, type Loaded, LOADING, routeTo, valueOf } from "./state.ts";
import { type Column, DataTable } from "./table.tsx";
import { ToolAnswer } from "./tools.tsx";

const WAITING: Readonly<Record<string, string>> = {
  server: "waits for the server",
  client: "waits for an answer of the client",
  approval: "waits for approval",
  queue: "waits in the queue",
};

/** A row: a call that runs or has ended, or a decision about a call that needed an approval. */
interface Entry {
  readonly key: string;
  /** When the call started, or the decision was made. */
  readonly at: number;
  readonly server: string;
  readonly tool: string;
  readonly name: string;
  readonly client: string;
  readonly outcome: string;
  readonly tone: Tone;
  readonly what:
    | { readonly kind: "running"; readonly call: CallDocument }
    | { readonly kind: "ended"; readonly call: EndedCall }
    | { readonly kind: "decision"; readonly decision: Decision };
}

/** The calls that run, then all others; the newest is first. @param server the only server; undefined: all */
function entriesOf(state: DashboardState, server: string | undefined): readonly Entry[] {
  const { calls, ended, activity, decisions, clients } = state;
  const running = [...calls.values()].toReversed().map((call): Entry => {
    return { ...callFacts(call, clients, describeRunning(call)), what: { kind: "running", call } };
  });
  // The last calls are known from events before the hub is asked for its list, which reaches further back.
  const known = new Map<number, EndedCall>();
  for (const call of [...ended, ...(valueOf(activity)?.calls ?? [])])
    if (!calls.has(call.call)) known.set(call.call, { ...known.get(call.call), ...call });
  const past = [...known.values()].map((call): Entry => {
    return { ...callFacts(call, clients, outcomeOf(call)), what: { kind: "ended", call } };
  });
  const decided = decisions.map((decision): Entry => {
    const isDenied = decision.decision === "deny";
    const { client, ...facts } = decision;
    return {
      ...entryFacts({ ...facts, ...(client !== undefined && { client }) }, clients),
      key: `decision ${decision.at} ${decision.name}`,
      at: decision.at,
      outcome: isDenied ? "denied" : `allowed: ${decision.decision}`,
      tone: isDenied ? "quiet" : "good",
      what: { kind: "decision", decision },
    };
  });
  const others = [...past, ...decided].toSorted((a, b) => b.at - a.at);
  const all = [...running, ...others];
  return server === undefined ? all : all.filter((entry) => entry.server === server);
}

function entryFacts(
  call: Pick<EndedCall, "server" | "tool" | "name" | "clientName" | "client" | "principal">,
  clients: ClientDocuments,
): Pick<Entry, "server" | "tool" | "name" | "client"> {
  const { server, tool, name } = call;
  return { server, tool, name, client: clientOf(call, clients) };
}

/** What an entry of a call has, whether it runs or has ended. @param shown how it is, in words */
function callFacts(
  call: Pick<
    EndedCall,
    "call" | "startedAt" | "server" | "tool" | "name" | "clientName" | "client" | "principal"
  >,
  clients: ClientDocuments,
  { text: outcome, tone }: { readonly text: string; readonly tone: Tone },
): Omit<Entry, "what"> {
  const { call: id, startedAt: at } = call;
  return { ...entryFacts(call, clients), key: `call ${id}`, at, outcome, tone };
}

/** The spans of the filter of time, in ms. */
const SPANS: Readonly<Record<string, number>> = { "5m": 300_000, "15m": 900_000, "1h": 3_600_000 };

export function CallsView({ state, actions }: ViewProps) {
  return (
    <div>
      <Header
        title="Calls"
        about="What runs now, the last 1,000 calls that ended, and decisions about them."
      />
      <CallTable state={state} actions={actions} server={undefined} />
    </div>
  );
}

/** The calls of one server, or of all. */
export function CallTable({
  state,
  actions,
  server,
}: ViewProps & { readonly server: string | undefined }) {
  const { route, now } = state;
  const initial = route.item?.startsWith("client:") === true ? route.item.slice(7) : "";
  const [chosen, setChosen] = useState<string | undefined>(undefined);
  const all = entriesOf(state, server);
  const shown = all.find(({ key }) => key === chosen);
  const filters: readonly ListFilter<Entry>[] = [
    ...(server === undefined
      ? [
          {
            label: "Server",
            options: nameOptions(all.map((entry) => entry.server)),
            matches: (entry: Entry, name: string) => entry.server === name,
          },
        ]
      : []),
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
        ["busy", "runs or waits"],
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
        ["15m", "last 15 minutes"],
        ["1h", "last hour"],
      ],
      matches: (entry, span) => now - entry.at < (SPANS[span] ?? Infinity),
    },
  ];
  const save = (type: "json" | "csv", entries: readonly Entry[]): void => {
    download(`toolmux-calls.${type}`, type === "json" ? toJson(entries) : csvOf(entries));
    actions.notify(`Saved ${count(entries.length, "row")}.`);
  };
  return (
    <div>
      <Ready
        of={state.activity.kind === "loading" && all.length > 0 ? NOTHING : state.activity}
        what="a list of calls"
        icon="calls"
        draw={() => (
          <FilteredList
            items={all}
            label="Calls"
            icon="calls"
            height={ROW_HEIGHT}
            keyOf={({ key }) => key}
            search={{
              label: "Search calls",
              of: (entry) => [entry.server, entry.tool, entry.name, entry.outcome],
            }}
            filters={filters}
            empty={[
              "No call was made yet",
              "A call appears here as soon as a client makes it. A restart of the hub empties the list.",
            ]}
            noMatch={["No call matches", "Choose other filters, or search for other words."]}
            controls={(entries) => (
              <span class="actions" key="save">
                <Button text="Save JSON" onPress={() => save("json", entries)} />
                <Button text="Save CSV" onPress={() => save("csv", entries)} />
              </span>
            )}
            list={(entries) => (
              <DataTable
                items={entries}
                columns={columnsFor(server === undefined, now, actions, setChosen)}
                label="Calls"
                height={ROW_HEIGHT}
                keyOf={({ key }) => key}
                rowOf={({ what }) =>
                  what.kind === "running" ? { "data-call": String(what.call.call) } : {}
                }
              />
            )}
          />
        )}
      />
      {shown !== undefined && (
        <CallDrawer
          key={shown.key}
          entry={shown}
          now={now}
          actions={actions}
          onClose={() => setChosen(undefined)}
        />
      )}
    </div>
  );
}

const NOTHING = { kind: "ready", value: { since: 0, calls: [] } } as const;

/** Height of a row, in CSS pixels. */
const ROW_HEIGHT = 44;

function columnsFor(
  hasServer: boolean,
  now: number,
  actions: Actions,
  choose: (key: string) => void,
): readonly Column<Entry>[] {
  return [
    {
      name: "Time",
      width: "4.8rem",
      from: 560,
      sortBy: ({ at }) => at,
      isNumber: true,
      draw: ({ at }) => <time class="about">{formatTime(at)}</time>,
    },
    {
      name: "Tool",
      width: "minmax(0, 4fr)",
      sortBy: ({ tool }) => tool,
      draw: ({ key, name, tool }) => (
        <button
          type="button"
          class="row-link name mono clip"
          title={name}
          onClick={() => choose(key)}
        >
          {tool}
        </button>
      ),
    },
    ...(hasServer
      ? [
          {
            name: "Server",
            width: "minmax(0, 2fr)",
            from: 560,
            sortBy: ({ server }: Entry) => server,
            draw: ({ server }: Entry) => <span class="about clip">{server}</span>,
          },
        ]
      : []),
    {
      name: "Client",
      width: "minmax(0, 2fr)",
      from: 760,
      sortBy: ({ client }) => client,
      draw: ({ client }) => <span class="about clip">{client}</span>,
    },
    {
      name: "Outcome",
      width: "minmax(0, 5fr)",
      sortBy: ({ outcome }) => outcome,
      draw: ({ what, outcome, tone }) => (
        <span class={`outcome clip ${tone}`} title={outcome}>
          {what.kind === "running" && what.call.progress !== undefined && (
            <Progress key="progress" call={what.call} />
          )}
          {outcome}
        </span>
      ),
    },
    {
      name: "Duration",
      width: "4.4rem",
      isNumber: true,
      sortBy: (entry) => durationOf(entry, now),
      draw: (entry) => {
        const duration = durationOf(entry, now);
        if (duration === undefined) return "";
        return entry.what.kind === "running" ? formatElapsed(duration) : formatDuration(duration);
      },
    },
    {
      name: "Result",
      width: "4.6rem",
      from: 900,
      isNumber: true,
      sortBy: ({ what }) => (what.kind === "ended" ? what.call.resultSize : undefined),
      draw: ({ what }) => (
        <span class="about">
          {what.kind === "ended" && what.call.resultSize !== undefined
            ? formatBytes(what.call.resultSize)
            : ""}
        </span>
      ),
    },
    {
      name: "Actions",
      width: "5rem",
      from: 480,
      draw: ({ what }) =>
        what.kind === "running" ? (
          <span class="actions" key="running">
            <Button
              kind="danger"
              text="Cancel"
              label={`Cancel ${what.call.tool}`}
              onPress={() => actions.cancelCall(what.call.call)}
            />
          </span>
        ) : (
          ""
        ),
    },
  ];
}

/** How long a call took, or runs already, in ms; undefined for a decision. */
function durationOf({ what, at }: Entry, now: number): number | undefined {
  if (what.kind === "decision") return undefined;
  return what.kind === "running" ? Math.max(0, now - at) : what.call.duration;
}

function Progress({ call: { tool, progress } }: { readonly call: CallDocument }) {
  const total = progress?.total;
  return (
    <progress
      class="bar inline"
      aria-label={`Progress of ${tool}`}
      {...(progress !== undefined &&
        total !== undefined && { max: total, value: Math.min(progress.progress, total) })}
    />
  );
}

function describeRunning({ progress, waitingFor }: CallDocument): {
  readonly text: string;
  readonly tone: Tone;
} {
  const total = progress?.total;
  const parts = [
    progress === undefined ? WAITING[waitingFor] : undefined,
    progress && (total === undefined ? progress.progress : `${progress.progress} of ${total}`),
    progress?.message,
  ].filter(Boolean);
  return { text: parts.length === 0 ? "runs" : parts.join(" · "), tone: "busy" };
}

/** How a call ended, in words. */
export function outcomeOf({ outcome, code, reason, by, isError }: EndedCall): {
  readonly text: string;
  readonly tone: "good" | "bad" | "quiet";
} {
  if (outcome === "cancelled")
    return { text: by === undefined ? "cancelled" : `cancelled: ${by}`, tone: "quiet" };
  if (outcome === "denied") return { text: "not allowed", tone: "quiet" };
  if (outcome === "failed" || isError === true)
    return { text: reason ?? code ?? "error result", tone: "bad" };
  return { text: "answered", tone: "good" };
}

/** The name of the client of a call. */
function clientOf(
  { clientName, client: id, principal }: Pick<EndedCall, "clientName" | "client" | "principal">,
  clients: ClientDocuments,
): string {
  const known = clients.find((one) => one.id === id);
  return nameOfClient({
    id,
    name: clientName || known?.name,
    principal: principal ?? known?.principal,
  });
}

/** A call with all that is known of it: why it failed, first of all. */
function CallDrawer({
  entry: { what, name, server, tool, client, at, outcome, tone },
  now,
  actions,
  onClose,
}: {
  readonly entry: Entry;
  readonly now: number;
  readonly actions: Actions;
  readonly onClose: () => void;
}) {
  const ended = what.kind === "ended" ? what.call : undefined;
  return (
    <Drawer title={name} onClose={onClose}>
      {tone === "bad" && (
        <section key="why" class="banner bad panel">
          <h3>Why it failed</h3>
          <p class="pre">
            {ended?.reason ??
              (ended?.code === undefined
                ? "The server answered with an error. The result below has it, if it is kept."
                : outcome)}
          </p>
        </section>
      )}
      <Facts
        of={{
          Outcome: tone === "bad" ? "failed" : outcome,
          Server: <a href={routeTo("servers", server)}>{server}</a>,
          "Own name of the tool": <span class="mono">{tool}</span>,
          Client: client,
          Started: formatDateTime(at),
          Code: ended?.code,
          By: what.kind === "decision" ? what.decision.by : ended?.by,
          Duration: ended
            ? formatDuration(ended.duration)
            : what.kind === "running"
              ? formatElapsed(Math.max(0, now - at))
              : undefined,
          "Waited for a person": ended?.personWait ? formatDuration(ended.personWait) : undefined,
          "Waited for the server": ended?.queueWait ? formatDuration(ended.queueWait) : undefined,
          "Size of the request": ended?.requestSize && formatBytes(ended.requestSize),
          "Size of the result": ended?.resultSize && formatBytes(ended.resultSize),
          "Number of the call": what.kind === "decision" ? undefined : what.call.call,
          "Part of call": ended?.parentCall,
        }}
      />
      <p class="actions">
        {what.kind === "running" && (
          <Button
            key="cancel"
            kind="danger"
            text="Cancel"
            label={`Cancel ${tool}`}
            onPress={() => actions.cancelCall(what.call.call)}
          />
        )}
        <a class="button" href={routeTo("tools", name)}>
          Open the tool
        </a>
        <a class="button" href={routeTo("logs", server)}>
          Open the log of {server}
        </a>
      </p>
      {ended !== undefined && <KeptParts key="kept" call={ended.call} actions={actions} />}
    </Drawer>
  );
}

/** The arguments and the result of an ended call, if a plugin such as audit-log has kept them. */
function KeptParts({ call, actions }: { readonly call: number; readonly actions: Actions }) {
  const [kept, setKept] = useState<Loaded<KeptCallDocument>>(LOADING);
  useEffect(() => {
    let isOpen = true;
    void actions.readKeptCall(call).then((loaded) => {
      if (isOpen) setKept(loaded);
    });
    return () => void (isOpen = false);
  }, [call]);
  return (
    <Ready
      of={kept}
      what="arguments and results"
      icon="calls"
      draw={({ by, arguments: args, argumentsSize, result, resultSize }) =>
        by === undefined ? (
          <p key="none" class="about">
            No arguments and no result are kept of this call. The{" "}
            <a href={routeTo("configure")}>plugin audit-log</a> keeps them, if it is switched on
            with <code>arguments = true</code> and <code>results = true</code>.
          </p>
        ) : (
          <div key="kept" class="flow" data-kept={by}>
            <section aria-labelledby="kept-arguments">
              <h3 id="kept-arguments">Arguments</h3>
              {args === undefined ? (
                <p key="none" class="about">
                  {notKept("arguments", argumentsSize, by)}
                </p>
              ) : (
                <pre key="text" tabindex={0}>
                  {indented(args)}
                </pre>
              )}
            </section>
            <section aria-labelledby="kept-result">
              <h3 id="kept-result">Result</h3>
              {result === undefined ? (
                <p key="none" class="about">
                  {notKept("result", resultSize, by)}
                </p>
              ) : (
                <ToolAnswer key="answer" answer={indented(result)} />
              )}
            </section>
            <p class="about">From {by}, which may hide values.</p>
          </div>
        )
      }
    />
  );
}

/** Why there is no text of the arguments or of the result. @param size of a text that was too long, in bytes */
function notKept(what: "arguments" | "result", size: number | undefined, by: string): string {
  if (size !== undefined) return `Too long to be kept${size > 0 ? `: ${formatBytes(size)}` : ""}.`;
  return what === "arguments"
    ? `${by} does not keep arguments; its option "arguments" is off.`
    : `${by} has no result: the call has none, or its option "results" is off.`;
}

/** A JSON text with line breaks; the text itself where that would change a number, or it is no JSON. */
function indented(json: string): string {
  try {
    const value: unknown = JSON.parse(json);
    return JSON.stringify(value) === json ? JSON.stringify(value, null, 2) : json;
  } catch {
    return json;
  }
}

function toJson(entries: readonly Entry[]): string {
  const documents = entries.map(({ what }) =>
    what.kind === "decision" ? what.decision : what.call,
  );
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
    entries.map(({ at, server, tool, name, client, outcome, what }) => {
      const ended = what.kind === "ended" ? what.call : undefined;
      return [
        new Date(at).toISOString(),
        server,
        tool,
        name,
        client,
        outcome,
        ended?.duration,
        ended?.requestSize,
        ended?.resultSize,
      ];
    }),
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

/** What the calls of a server show of it. Durations are in ms. */
export interface CallStats {
  /** When the last call started, in ms since the epoch. */
  readonly last: number;
  readonly calls: number;
  readonly errors: number;
  /** The median of the durations; undefined if no call was answered. */
  readonly median: number | undefined;
}

/** Counts the calls of each server. */
export function callStatsOf(calls: readonly EndedCall[]): ReadonlyMap<string, CallStats> {
  const byServer = Map.groupBy(calls, ({ server }) => server);
  const stats = [...byServer].map(([server, own]) => {
    const durations = own
      .filter((call) => outcomeOf(call).tone === "good")
      .map(({ duration }) => duration)
      .toSorted((a, b) => a - b);
    const one: CallStats = {
      last: Math.max(...own.map(({ startedAt }) => startedAt)),
      calls: own.length,
      errors: own.filter((call) => outcomeOf(call).tone === "bad").length,
      median: durations[Math.floor(durations.length / 2)],
    };
    return [server, one] as const;
  });
  return new Map(stats);
}
