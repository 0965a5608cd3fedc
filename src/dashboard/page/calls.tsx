import type { ViewProps } from "./actions.ts";
import type { CallDocument, ClientDocuments, EndedCall } from "./documents.ts";
import { formatBytes, formatDuration, formatElapsed, formatTime } from "./format.ts";
import { FilteredList } from "./filtered-list.tsx";
import { Button, Empty, Header, Rows, useNarrow } from "./parts.tsx";

const WAITING: Readonly<Record<string, string>> = {
  server: "waits for the server",
  client: "waits for an answer of the client",
  approval: "waits for approval",
  queue: "waits in the queue",
};

export function CallsView({ state, actions }: ViewProps) {
  const isNarrow = useNarrow();
  const calls = [...state.calls.values()];
  return (
    <div>
      <Header title="Calls" about="What runs now, and the last 200 that ended." />
      <h2 class="part">In flight</h2>
      {calls.length === 0 ? (
        <Empty key="none" icon="calls" title="No call runs">
          A call appears here as soon as a client makes it, and can be cancelled.
        </Empty>
      ) : (
        <Rows
          key="calls"
          items={calls}
          height={isNarrow ? 96 : 60}
          label="Calls in flight"
          class="card"
          keyOf={({ call }) => call}
          draw={(call) => (
            <RunningCall
              call={call}
              now={state.now}
              onCancel={() => actions.cancelCall(call.call)}
            />
          )}
        />
      )}
      <h2 class="part">Ended</h2>
      <FilteredList
        items={state.ended}
        label="Ended calls"
        icon="calls"
        height={isNarrow ? 56 : 36}
        keyOf={({ call }) => call}
        search={{ label: "Search tools", of: ({ server, tool, name }) => [server, tool, name] }}
        empty={["No call has ended", "Calls are listed here when they have ended."]}
        noMatch={["No call matches", "Search for other words."]}
        draw={(call) => (
          <div class="row ended">
            <EndedCells
              at={call.startedAt}
              what={`${call.server} · ${call.tool}`}
              client={clientOf(call, state.clients)}
              outcome={outcomeOf(call)}
              duration={call.duration}
              size={call.resultSize}
            />
          </div>
        )}
      />
    </div>
  );
}

function RunningCall({
  call,
  now,
  onCancel,
}: {
  readonly call: CallDocument;
  readonly now: number;
  readonly onCancel: () => void;
}) {
  const { tool, server, clientName, client, principal, startedAt, progress, waitingFor } = call;
  const total = progress?.total;
  return (
    <div class="row running" data-call={call.call}>
      <div class="stack">
        <span class="name mono clip">{tool}</span>
        <span class="about clip">
          {server} · {(principal ?? (clientName || client)) || "a client"}
        </span>
      </div>
      <div class="stack what">
        {progress !== undefined ? (
          <progress
            class="bar"
            key="progress"
            aria-label={`Progress of ${tool}`}
            {...(total !== undefined && { max: total, value: Math.min(progress.progress, total) })}
          />
        ) : (
          <span key="none" class="bar" />
        )}
        <span class="about clip">
          {[
            progress === undefined ? WAITING[waitingFor] : undefined,
            progress &&
              (total === undefined ? progress.progress : `${progress.progress} of ${total}`),
            progress?.message,
          ]
            .filter(Boolean)
            .join(" · ")}
        </span>
      </div>
      <time class="about number">{formatElapsed(Math.max(0, now - startedAt))}</time>
      <div class="actions">
        <Button kind="danger" text="Cancel" label={`Cancel ${tool}`} onPress={onCancel} />
      </div>
    </div>
  );
}

/** How a call ended, in words. */
export function outcomeOf({ outcome, code, by, isError }: EndedCall): {
  readonly text: string;
  readonly tone: "good" | "bad" | "quiet";
} {
  if (outcome === "cancelled")
    return { text: by === undefined ? "cancelled" : `cancelled: ${by}`, tone: "quiet" };
  if (outcome === "failed" || isError === true)
    return { text: code ?? "error result", tone: "bad" };
  return { text: "answered", tone: "good" };
}

/** The name of a client for people: the name of its token, else the name that the client gives itself. */
export function clientOf(
  { clientName, client, principal }: Pick<EndedCall, "clientName" | "client" | "principal">,
  clients: ClientDocuments,
): string {
  if (principal !== undefined) return principal;
  return clientName || (clients.find(({ id }) => id === client)?.name ?? client ?? "");
}

/** The cells of a row about a call that has ended, or about a decision. Durations are in ms, sizes in bytes. */
export function EndedCells({
  at,
  what,
  client,
  outcome,
  duration,
  size,
}: {
  readonly at: number;
  readonly what: string;
  readonly client: string;
  readonly outcome: ReturnType<typeof outcomeOf>;
  readonly duration: number | undefined;
  readonly size: number | undefined;
}) {
  return (
    <>
      <time class="about">{formatTime(at)}</time>
      <span class="mono clip" title={what}>
        {what}
      </span>
      <span class="about clip client">{client}</span>
      <span class={`outcome clip ${outcome.tone}`}>{outcome.text}</span>
      <span class="number">{duration === undefined ? "" : formatDuration(duration)}</span>
      <span class="about number wide">{size === undefined ? "" : formatBytes(size)}</span>
    </>
  );
}
