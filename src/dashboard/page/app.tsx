import { ErrorBoundary, useEffect, useRef, useState } from "hono/jsx/dom";
import { ActivityView } from "./activity.tsx";
import { AddView } from "./add.tsx";
import { AgentsView } from "./agents.tsx";
import { ApprovalsView } from "./approvals.tsx";
import { CallsView } from "./calls.tsx";
import { ClientsView } from "./clients.tsx";
import { ConfigureView } from "./configure.tsx";
import { ConnectView } from "./connect.tsx";
import type { Actions, ViewProps } from "./actions.ts";
import type { AlertDocument } from "./documents.ts";
import { indicatorOf } from "./format.ts";
import { LogsView } from "./logs.tsx";
import { ModesView } from "./modes.tsx";
import { Button, Choice, Dot, Empty, Icon } from "./parts.tsx";
import { ServersView } from "./servers.tsx";
import {
  type DashboardState,
  openAlerts,
  routeTo,
  serversOf,
  valueOf,
  type ViewName,
} from "./state.ts";
import { ToolsView } from "./tools.tsx";
import { UsageView } from "./usage.tsx";

const TITLES: Readonly<Record<ViewName, string>> = {
  servers: "Servers",
  calls: "Calls",
  approvals: "Approvals",
  agents: "Agents",
  tools: "Tools",
  modes: "Modes",
  clients: "Clients",
  logs: "Logs",
  activity: "Activity",
  usage: "Usage",
  add: "Add a server",
  configure: "Configure",
  connect: "Connect a client",
};

const GROUPS: readonly (readonly ViewName[])[] = [
  ["servers", "calls", "approvals", "agents"],
  ["tools", "modes", "clients"],
  ["logs", "activity", "usage"],
  ["add", "configure", "connect"],
];

const CONTENTS = {
  servers: ServersView,
  calls: CallsView,
  approvals: ApprovalsView,
  agents: AgentsView,
  tools: ToolsView,
  modes: ModesView,
  clients: ClientsView,
  logs: LogsView,
  activity: ActivityView,
  usage: UsageView,
  add: AddView,
  configure: ConfigureView,
  connect: ConnectView,
} as const;

/** The title of the page, which begins with the number of waiting approvals. */
export function titleOf({ approvals, route, hub }: DashboardState): string {
  const waiting = valueOf(approvals)?.length ?? 0;
  const name = hub === undefined ? "toolmux" : hub.name;
  return `${waiting > 0 ? `(${waiting}) ` : ""}${TITLES[route.view]} · ${name}`;
}

export function App({ state, actions }: ViewProps) {
  const { route, connection, notices } = state;
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    main.current?.scrollTo(0, 0);
    const current = document.querySelector("nav [aria-current]");
    current?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [route.view]);
  const View = CONTENTS[route.view];
  return (
    <div class="page">
      <a class="skip" href="#view-title" onClick={focusTitle}>
        Skip to the content
      </a>
      <TopBar state={state} actions={actions} />
      <Navigation state={state} />
      <main ref={main} data-scroll="main" class={connection.kind === "live" ? "" : "old"}>
        <ConnectionBanner state={state} />
        <Alerts alerts={openAlerts(state)} actions={actions} />
        {isReadable(state) ? (
          <section key={route.view} class={`view ${route.view}`} aria-labelledby="view-title">
            <ErrorBoundary fallbackRender={describeFault}>
              <View state={state} actions={actions} />
            </ErrorBoundary>
          </section>
        ) : (
          <p key="none" class="view">
            {" "}
          </p>
        )}
      </main>
      <div class="notices" role="status" aria-live="polite">
        {notices.map(({ id, text, isError }) => (
          <p key={id} class={isError ? "notice bad" : "notice"}>
            {text}
          </p>
        ))}
      </div>
    </div>
  );
}

/** Replaces a view that cannot be drawn: a hub of another version may send data that the page does not expect. */
function describeFault(error: Error) {
  return (
    <Empty icon="configure" title="This view cannot be drawn">
      <span id="view-title">
        The page and the hub may be of different versions. ({error.message})
      </span>
    </Empty>
  );
}

/** Whether the page may show data of a hub. The data may be old. */
function isReadable({ hub, connection }: DashboardState): boolean {
  return hub !== undefined && connection.kind !== "denied";
}

function focusTitle(event: Event): void {
  event.preventDefault();
  document.getElementById("view-title")?.focus();
}

function TopBar({ state, actions }: ViewProps) {
  const { hubs, hubId, connection } = state;
  const servers = serversOf(state);
  const indicator = indicatorOf(servers);
  return (
    <header class="top">
      <a class="brand" href="#/servers">
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <path d="M4 8h8l4 8 4 8h8M4 24h8l4-8 4-8h8M4 16h24" />
        </svg>
        toolmux
      </a>
      {hubs.length > 1 && (
        <Choice
          key="hubs"
          label="Hub"
          value={hubId ?? ""}
          options={hubs.map(({ id, pid, name, manifest, cwd }) => [
            id,
            `${name} ${pid} · ${shortPath(manifest[0] ?? cwd)}`,
          ])}
          onChoose={(id) => actions.selectHub(id)}
        />
      )}
      <span class="space" />
      <span key="link" class="link" role="status">
        {connection.kind === "live"
          ? "live"
          : connection.kind === "opening"
            ? "opening…"
            : "not connected"}
      </span>
      <a key="indicator" class="indicator" href="#/servers" title={indicator.title}>
        <Dot tone={indicator.tone} />
        {indicator.text}
        <span class="unseen"> servers connected</span>
      </a>
    </header>
  );
}

/** The last two parts of a path. */
function shortPath(path: string): string {
  const parts = path.split(/[\\/]/);
  return parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : path;
}

function Navigation({ state }: { readonly state: DashboardState }) {
  const counts: Partial<Record<ViewName, number>> = {
    servers: serversOf(state).filter(({ state: name }) => name === "failed").length,
    calls: state.calls.size,
    approvals: valueOf(state.approvals)?.length ?? 0,
  };
  const urgent: Partial<Record<ViewName, string>> = { servers: "bad", approvals: "busy" };
  return (
    <nav aria-label="Views">
      {GROUPS.map((views, at) => (
        <ul key={at}>
          {views.map((view) => {
            const number = counts[view] ?? 0;
            return (
              <li key={view}>
                <a
                  href={routeTo(view)}
                  aria-current={state.route.view === view ? "page" : undefined}
                >
                  <Icon name={view} />
                  <span>{TITLES[view]}</span>
                  <span class={number > 0 ? `count ${urgent[view] ?? ""}` : "count none"}>
                    {number > 0 ? number : ""}
                  </span>
                </a>
              </li>
            );
          })}
        </ul>
      ))}
    </nav>
  );
}

function ConnectionBanner({ state: { connection } }: { readonly state: DashboardState }) {
  if (connection.kind === "live" || connection.kind === "opening")
    return <div class="banners" role="status" />;
  const [title, text] =
    connection.kind === "none"
      ? [
          "No toolmux of yours is running.",
          "Start one: toolmux serve --http 8700. An MCP client that uses toolmux starts one, too.",
        ]
      : connection.kind === "denied"
        ? ["This page may not see your hubs.", connection.text]
        : ["This page is out of date.", connection.text];
  return (
    <div class="banners" role="status">
      <div class="banner busy">
        <p>
          <strong>{title}</strong> {text}
        </p>
      </div>
    </div>
  );
}

/** Whom an alert is about that names no server. */
function subjectOf(client: string | undefined): string {
  return client === undefined ? "hub" : `client ${client}`;
}

/** Shows the newest alert, and a button that shows all. */
function Alerts({
  alerts,
  actions,
}: {
  readonly alerts: readonly AlertDocument[];
  readonly actions: Actions;
}) {
  const [isOpen, setOpen] = useState(false);
  const newest = alerts.toReversed();
  const shown = isOpen ? newest : newest.slice(0, 1);
  return (
    <div class="banners" role="region" aria-label="Alerts" aria-live="polite">
      {shown.map(({ client, server = subjectOf(client), ...alert }, at) => (
        <div class="banner bad pair" key={alert.id}>
          <p>
            <strong>{server}</strong> <span>{alert.text}</span>
          </p>
          <div class="actions">
            {isAboutLogin(alert) ? (
              <Button
                key="login"
                text="Log in"
                label={`Log in to ${server}`}
                onPress={() => actions.server(server, "login")}
              />
            ) : isAboutConnection(alert) ? (
              <Button
                key="retry"
                text="Retry"
                label={`Retry ${server}`}
                onPress={() => actions.server(server, "reconnect")}
              />
            ) : undefined}
            <Button
              key="dismiss"
              text="Dismiss"
              label={`Dismiss the alert of ${server}`}
              onPress={() => actions.dismissAlert(alert.id)}
            />
            {at === 0 && alerts.length > 1 && (
              <button
                key="more"
                type="button"
                aria-expanded={isOpen ? "true" : "false"}
                onClick={() => setOpen(!isOpen)}
              >
                {isOpen ? "Show one" : `${alerts.length - 1} more`}
              </button>
            )}
          </div>
        </div>
      ))}
      {isOpen && alerts.length > 1 && (
        <p class="actions" key="all">
          <Button text="Dismiss all" onPress={() => actions.dismissAlert(undefined)} />
        </p>
      )}
    </div>
  );
}

function isAboutLogin({ kind }: Pick<AlertDocument, "kind">): boolean {
  return kind === "authRequired" || kind === "authExpired";
}

function isAboutConnection({ kind }: Pick<AlertDocument, "kind">): boolean {
  return kind === "connectionFailed" || kind === "disconnected";
}
