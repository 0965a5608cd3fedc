import type { Actions, ViewProps } from "./actions.ts";
import type { UsageDocument } from "./documents.ts";
import { count, formatAgo, formatNumber, formatTokens } from "./format.ts";
import { type Health, healthOf, type Trouble } from "./health.ts";
import { nameOfClient } from "../../base/client-name.ts";
import { hubNames } from "./hub-names.ts";
import { Button, Dot, Header, Icon, Ready } from "./parts.tsx";
import { FirstSteps } from "./first-steps.tsx";
import { SharingOffers } from "./sharing.tsx";
import {
  type DashboardState,
  MINUTES,
  openAlerts,
  questionsOfOthers,
  routeOfServer,
  routeTo,
  serversOf,
  valueOf,
} from "./state.ts";

/** The home of the page: whether all is well, and what to do. */
export function OverviewView({ state, actions }: ViewProps) {
  const servers = serversOf(state);
  const alerts = openAlerts(state);
  return (
    <div>
      <Header title="Overview" about={aboutHub(state)}>
        <a key="add" class="button" href={routeTo("add")}>
          Add a server
        </a>
        <a key="connect" class="button" href={routeTo("connect")}>
          Connect a client
        </a>
      </Header>
      <Ready
        of={state.servers}
        what="a list of servers"
        icon="servers"
        draw={() =>
          servers.length === 0 ? (
            <FirstSteps key="first" state={state} actions={actions} />
          ) : (
            <HealthCard
              key="health"
              health={healthOf(servers, alerts, state.now, state.hub?.rejected)}
              alerts={alerts.length}
              actions={actions}
            />
          )
        }
      />
      <SharingOffers key="sharing" state={state} />
      <ul class="plain cards tiles">
        <CallTiles minutes={valueOf(state.minutes)} running={state.calls.size} now={state.now} />
        <ApprovalTile state={state} />
        <CostTile state={state} />
      </ul>
      <div class="columns">
        <section aria-labelledby="who">
          <h2 class="part" id="who">
            Clients
          </h2>
          <Clients state={state} />
          {state.hubs.length > 1 && (
            <div key="hubs">
              <h2 class="part">Hubs</h2>
              <Hubs state={state} actions={actions} />
            </div>
          )}
        </section>
        <section aria-labelledby="changes">
          <h2 class="part" id="changes">
            What changed last
          </h2>
          <Changes state={state} />
        </section>
      </div>
    </div>
  );
}

/** What the hub is: its name among several hubs, its manifest, and its age. */
function aboutHub({ hub, hubs, hubId, hubClients, now }: DashboardState): string | undefined {
  if (hub === undefined) return undefined;
  const { pid, manifest, version, startedAt } = hub;
  const name = hubs.length > 1 ? hubNames(hubs, hubClients).get(hubId ?? "") : undefined;
  return [
    name,
    manifest[0],
    version && `toolmux ${version}`,
    `process ${pid}`,
    startedAt > 0 && now > 0 ? `started ${formatAgo(startedAt, now)}` : undefined,
  ]
    .filter((text) => text !== undefined && text !== "")
    .join(" · ");
}

function HealthCard({
  health: { tone, sentence, note, troubles },
  alerts,
  actions,
}: {
  readonly health: Health;
  readonly alerts: number;
  readonly actions: Actions;
}) {
  return (
    <section class="card health" data-tone={tone} aria-labelledby="health">
      <div class="pair health-head">
        <h2 id="health">
          <Dot tone={tone} /> {sentence}
          {note !== "" && (
            <span key="note" class="about">
              {" "}
              {note}
            </span>
          )}
        </h2>
        <span class="actions">
          {troubles.filter(({ server, tone: one }) => server !== undefined && one === "bad")
            .length > 1 && (
            <Button key="all" text="Retry all" onPress={() => actions.reconnectFailed()} />
          )}
          {troubles.filter(({ alert }) => alert !== undefined).length > 1 && (
            <Button
              key="dismiss"
              text={`Dismiss ${alerts} alerts`}
              onPress={() => actions.dismissAlert(undefined)}
            />
          )}
        </span>
      </div>
      {troubles.length > 0 && (
        <ul key="troubles" class="list" aria-label="What needs you">
          {troubles.map((trouble) => (
            <TroubleRow key={trouble.key} trouble={trouble} actions={actions} />
          ))}
        </ul>
      )}
    </section>
  );
}

function TroubleRow({
  trouble: { server, title, tone, reason, remedy, cure, alert },
  actions,
}: {
  readonly trouble: Trouble;
  readonly actions: Actions;
}) {
  return (
    <li class="pair trouble" data-trouble={server ?? title}>
      <div class="stack">
        {server === undefined ? (
          <span key="title" class="name">
            {title}
          </span>
        ) : (
          <a key="title" class="name" href={routeTo("servers", server)}>
            {title}
          </a>
        )}
        <span class={`about reason ${tone}`}>{reason}</span>
        {remedy !== undefined && remedy !== reason && (
          <span key="remedy" class="about">
            {remedy}
          </span>
        )}
      </div>
      <span class="actions">
        {server !== undefined && (
          <a
            key="logs"
            class="button"
            href={routeTo("logs", server)}
            aria-label={`Logs of ${title}`}
          >
            Logs
          </a>
        )}
        {server !== undefined && (cure === "retry" || cure === "edit") && (
          <a
            key="edit"
            class={cure === "edit" ? "button primary" : "button"}
            href={routeOfServer(server, "config")}
            aria-label={`Edit ${title}`}
          >
            Edit
          </a>
        )}
        {server !== undefined && cure === "login" && (
          <Button
            key="login"
            kind="primary"
            text="Log in"
            label={`Log in to ${title}`}
            onPress={() => actions.server(server, "login")}
          />
        )}
        {cure === "manifest" && (
          <a key="manifest" class="button primary" href={routeTo("configure")}>
            Configure
          </a>
        )}
        {server !== undefined && cure === "secret" && (
          <a
            key="secret"
            class="button primary"
            href={routeTo("configure")}
            aria-label={`Set the secret of ${title}`}
          >
            Set the secret
          </a>
        )}
        {server !== undefined && cure === "retry" && (
          <Button
            key="retry"
            kind="primary"
            text="Retry"
            label={`Retry ${title}`}
            onPress={() => actions.server(server, "reconnect")}
          />
        )}
        {alert !== undefined && (
          <Button
            key="dismiss"
            text="Dismiss"
            label={`Dismiss the alert of ${title}`}
            onPress={() => actions.dismissAlert(alert)}
          />
        )}
      </span>
    </li>
  );
}

/** The calls of all tools in each minute of the last hour, oldest first. The minutes since the answer had no call. */
function perMinute(
  { tools, until, step }: UsageDocument,
  of: "calls" | "failed",
  now: number,
): readonly number[] {
  const passed = now === 0 ? 0 : Math.max(0, Math.floor((now - until) / step));
  return Array.from({ length: MINUTES }, (_, at) =>
    tools.reduce((sum, { points }) => sum + (points[at + passed]?.[of] ?? 0), 0),
  );
}

function CallTiles({
  minutes,
  running,
  now,
}: {
  readonly minutes: UsageDocument | undefined;
  readonly running: number;
  readonly now: number;
}) {
  const calls = minutes === undefined ? [] : perMinute(minutes, "calls", now);
  const errors = minutes === undefined ? [] : perMinute(minutes, "failed", now);
  const last = (values: readonly number[]): string => {
    const value = values.at(-1);
    return value === undefined ? "–" : formatNumber(value);
  };
  const sum = (values: readonly number[]): number => values.reduce((all, one) => all + one, 0);
  return (
    <>
      <li class="card panel tile" key="calls">
        <a class="name" href={routeTo("calls")}>
          Calls a minute
        </a>
        <strong class="figure">{last(calls)}</strong>
        <Bars
          values={calls}
          tone="accent"
          label={`Calls in each minute of the last hour: ${sum(calls)} in all`}
        />
        <span class="about">
          {formatNumber(sum(calls))} in the last hour, {formatNumber(running)} now
        </span>
      </li>
      <li class="card panel tile" key="errors">
        <a class="name" href={routeTo("usage")}>
          Errors a minute
        </a>
        <strong class={`figure ${(errors.at(-1) ?? 0) > 0 ? "bad" : ""}`}>{last(errors)}</strong>
        <Bars
          values={errors}
          tone="bad"
          label={`Errors in each minute of the last hour: ${sum(errors)} in all`}
        />
        <span class="about">
          {sum(errors) === 0
            ? "none in the last hour"
            : `${formatNumber(sum(errors))} in the last hour, ${Math.max(1, Math.round((sum(errors) * 100) / Math.max(1, sum(calls))))}\u00a0% of the calls`}
        </span>
      </li>
    </>
  );
}

const BARS_HEIGHT = 24;

/** A small chart: one bar for each value. */
function Bars({
  values,
  tone,
  label,
}: {
  readonly values: readonly number[];
  readonly tone: "accent" | "bad";
  readonly label: string;
}) {
  const most = Math.max(1, ...values);
  const path = values
    .map((value, at) => {
      const height = value === 0 ? 0 : Math.max(1.5, (value / most) * BARS_HEIGHT);
      return height === 0
        ? ""
        : `M${at} ${BARS_HEIGHT}v-${height.toFixed(1)}h.7v${height.toFixed(1)}z`;
    })
    .join("");
  return (
    <svg
      class={`bars ${tone}`}
      viewBox={`0 0 ${Math.max(1, values.length)} ${BARS_HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <path d={path} />
    </svg>
  );
}

function ApprovalTile({ state: { approvals, now } }: { readonly state: DashboardState }) {
  const waiting = valueOf(approvals) ?? [];
  const oldest = waiting.reduce((first, { askedAt }) => Math.min(first, askedAt), Infinity);
  return (
    <li class="card panel tile">
      <a class="name" href={routeTo("approvals")}>
        Waiting approvals
      </a>
      <strong class={`figure ${waiting.length > 0 ? "busy" : ""}`}>
        {formatNumber(waiting.length)}
      </strong>
      <span class="about">
        {waiting.length === 0
          ? "No call waits for you."
          : `The oldest was asked ${formatAgo(oldest, now)}.`}
      </span>
      {waiting.length > 0 && (
        <a key="answer" class="button" href={routeTo("approvals")}>
          Answer
        </a>
      )}
    </li>
  );
}

function CostTile({ state }: { readonly state: DashboardState }) {
  const tools = valueOf(state.tools)?.tools ?? [];
  const tokens = tools.reduce((sum, one) => sum + one.tokens, 0);
  return (
    <li class="card panel tile">
      <a class="name" href={routeTo("usage")}>
        Context cost
      </a>
      <strong class="figure">≈ {formatTokens(tokens)}</strong>
      <span class="about">
        tokens of a model's context for the definitions of {count(tools.length, "tool")}
      </span>
    </li>
  );
}

function Clients({ state: { clients, now } }: { readonly state: DashboardState }) {
  if (clients.length === 0) {
    return (
      <div class="card panel">
        <p class="about">No MCP client is connected.</p>
        <p class="actions">
          <a class="button" href={routeTo("connect")}>
            Connect a client
          </a>
        </p>
      </div>
    );
  }
  return (
    <ul class="card list">
      {clients.map((client) => (
        <li key={client.id} class="pair">
          <span class="stack">
            <a class="name" href={routeTo("clients")}>
              {nameOfClient(client)}
            </a>
            <span class="about">
              {[
                client.id,
                client.since === undefined
                  ? undefined
                  : `connected ${formatAgo(client.since, now)}`,
              ]
                .filter(Boolean)
                .join(" · ")}
            </span>
          </span>
          <span class="about">
            {count(client.calls, "call")}
            {client.inFlight > 0 ? `, ${formatNumber(client.inFlight)} now` : ""}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** All hubs of this user, with their clients. */
function Hubs({ state, actions }: ViewProps) {
  const { hubs, hubId, hubClients } = state;
  const waiting = new Map(
    questionsOfOthers(state).map(({ id, approvals }) => [id, approvals.length]),
  );
  const names = hubNames(hubs, hubClients);
  return (
    <ul class="card list">
      {hubs.map(({ id, pid, name }) => {
        const clients = hubClients.get(id) ?? [];
        return (
          <li key={id} class="pair">
            <span class="stack">
              {id === hubId ? (
                <span key="this" class="name">
                  {names.get(id) ?? name}
                </span>
              ) : (
                <button
                  key="other"
                  type="button"
                  class="as-link name"
                  onClick={() => actions.openHub(id, "overview")}
                >
                  {names.get(id) ?? name}
                </button>
              )}
              <span class="about">
                process {pid}
                {id === hubId ? ", shown here" : ""}
              </span>
            </span>
            {waiting.has(id) && (
              <span key="waiting" class="count busy">
                {count(waiting.get(id) ?? 0, "question")}
              </span>
            )}
            <span class="about">
              {clients.length === 0 ? "no client" : clients.map(nameOfClient).join(", ")}
            </span>
          </li>
        );
      })}
    </ul>
  );
}

function Changes({ state: { changes, now } }: { readonly state: DashboardState }) {
  if (changes.length === 0)
    return <p class="card panel about">Nothing has changed since this hub started.</p>;
  // A server that is tried again and again would leave no place for others.
  const told = new Set<string>();
  const latest = changes.filter(({ server }) => {
    if (server === undefined) return true;
    const isFirst = !told.has(server);
    told.add(server);
    return isFirst;
  });
  return (
    <ul class="card list changes">
      {latest.slice(0, 8).map(({ seq, at, level, server, text }) => (
        <li key={seq}>
          <Icon name={level === "info" ? "activity" : "logs"} />
          <span class={`change ${level === "error" ? "bad" : level === "warn" ? "busy" : ""}`}>
            {server !== undefined && !text.startsWith(server) && (
              <a key="server" class="name" href={routeTo("servers", server)}>
                {server}
              </a>
            )}{" "}
            {text}
          </span>
          <time class="about">{formatAgo(at, now)}</time>
        </li>
      ))}
    </ul>
  );
}
