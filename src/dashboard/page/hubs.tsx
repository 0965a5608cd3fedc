import { nameOfClient } from "../../base/client-name.ts";
import type { ViewProps } from "./actions.ts";
import type { HubEntry } from "./documents.ts";
import { count, formatAgo, formatNumber } from "./format.ts";
import { healthOf } from "./health.ts";
import { hubNames } from "./hub-names.ts";
import { Button, Dot, Empty, Header } from "./parts.tsx";
import { SharingOffers } from "./sharing.tsx";
import type { HubOverview } from "./state.ts";
import { MiddleCut } from "./table.tsx";

/** All hubs of this user: the health of each, what waits for a person, and who uses it. */
export function HubsView({ state, actions }: ViewProps) {
  const { hubs, hubClients, hubOverviews, now } = state;
  const clientsOf = (id: string) => hubOverviews.get(id)?.clients ?? hubClients.get(id) ?? [];
  const names = hubNames(hubs, new Map(hubs.map(({ id }) => [id, clientsOf(id)])));
  return (
    <div>
      <Header title="All hubs" about={`${count(hubs.length, "hub")} of yours`} />
      <SharingOffers key="sharing" state={state} />
      {hubs.length === 0 ? (
        <Empty key="none" icon="hubs" title="No hub is running">
          <a class="button" href="#/overview">
            Start a hub
          </a>
        </Empty>
      ) : (
        <ul key="hubs" class="plain cards">
          {hubs.map((hub) => (
            <li key={hub.id} class="card panel" data-hub={hub.pid}>
              <HubCard
                hub={hub}
                name={names.get(hub.id) ?? hub.name}
                overview={hubOverviews.get(hub.id)}
                now={now}
                actions={actions}
              />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function HubCard({
  hub: { id, pid, cwd, manifest, startedAt },
  name,
  overview,
  now,
  actions,
}: {
  readonly hub: HubEntry;
  readonly name: string;
  readonly overview: HubOverview | undefined;
  readonly now: number;
  readonly actions: ViewProps["actions"];
}) {
  const { servers = [], alerts = [], clients = [], approvals = 0, calls = 0 } = overview ?? {};
  const rejected = overview?.rejected;
  const open = alerts.filter(({ dismissed }) => dismissed !== true);
  const health = healthOf(servers, open, now, rejected);
  return (
    <>
      <div class="pair">
        <div class="stack">
          <h2>{name}</h2>
          <span class="about">
            process {pid} · started {formatAgo(startedAt, now)}
          </span>
        </div>
        <span class="actions">
          {approvals > 0 && (
            <Button
              key="answer"
              kind="primary"
              text={`Answer ${count(approvals, "question")}`}
              label={`Answer ${count(approvals, "question")} of ${name}`}
              onPress={() => actions.openHub(id, "approvals")}
            />
          )}
          <Button
            text="Open"
            label={`Open ${name}`}
            onPress={() => actions.openHub(id, "overview")}
          />
        </span>
      </div>
      <p class="state-line">
        <Dot tone={overview === undefined ? "quiet" : health.tone} />
        <span>{overview === undefined ? "Reading…" : health.sentence}</span>
      </p>
      {health.troubles.length > 0 && (
        <ul key="troubles" class="plain">
          {health.troubles.map(({ key, server, title, tone, reason }) => (
            <li key={key} class="break">
              {server === undefined ? (
                <strong key="title">{title}</strong>
              ) : (
                <button
                  key="title"
                  type="button"
                  class="as-link name"
                  onClick={() => actions.openHub(id, "servers", server)}
                >
                  {title}
                </button>
              )}{" "}
              <span class={`about ${tone}`}>{reason}</span>
            </li>
          ))}
        </ul>
      )}
      <p class="about break">
        {clients.length === 0
          ? "No client is connected."
          : `Clients: ${clients.map(nameOfClient).join(", ")}.`}{" "}
        {formatNumber(calls)} {calls === 1 ? "call runs" : "calls run"} now.
      </p>
      <MiddleCut key="where" class="about" text={manifest[0] ?? cwd} />
    </>
  );
}
