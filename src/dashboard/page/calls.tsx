import type { ViewProps } from "./app.tsx";
import type { CallDocument, ClientDocuments, EndedCall } from "./documents.ts";
import { formatBytes, formatDuration, formatElapsed, formatTime } from "./format.ts";
import { Button, Empty, Header, Rows, useNarrow } from "./parts.tsx";

const WAITING: Readonly<Record<string, string>> = {
  server: "waits for the server",
  client: "waits for an answer of the client",
  approval: "waits for approval",
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
      {state.ended.length === 0 ? (
        <p key="none" class="about">
          No call has ended since the hub started.
        </p>
      ) : (
        <Rows
          key="ended"
          items={state.ended}
          height={isNarrow ? 56 : 36}
          label="Ended calls"
          class="card"
          keyOf={({ call }) => call}
          draw={(call) => <EndedRow call={call} client={clientOf(call, state.clients)} />}
        />
      )}
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
    <div class="running" data-call={call.call}>
      <div class="who">
        <span class="name mono">{tool}</span>
        <span class="about">
          {server} · {(principal ?? (clientName || client)) || "a client"}
        </span>
      </div>
      <div class="what">
        {progress !== undefined ? (
          <progress
            key="progress"
            aria-label={`Progress of ${tool}`}
            {...(total !== undefined && { max: total, value: Math.min(progress.progress, total) })}
          />
        ) : (
          <span key="none" class="no-progress" />
        )}
        <span class="about">
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
      <time class="number">{formatElapsed(Math.max(0, now - startedAt))}</time>
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

function EndedRow({ call, client }: { readonly call: EndedCall; readonly client: string }) {
  const { text, tone } = outcomeOf(call);
  return (
    <div class="ended">
      <time>{formatTime(call.startedAt)}</time>
      <span class="mono clip" title={call.name}>
        {call.server} · {call.tool}
      </span>
      <span class="about clip">{client}</span>
      <span class={`outcome ${tone}`}>{text}</span>
      <span class="number">{formatDuration(call.duration)}</span>
      <span class="number size">
        {call.resultSize === undefined ? "" : formatBytes(call.resultSize)}
      </span>
    </div>
  );
}
