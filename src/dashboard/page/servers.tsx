import { useState } from "hono/jsx/dom";
import type { Actions, ViewProps } from "./actions.ts";
import { type CallStats, callStatsOf } from "./calls.tsx";
import type { ServerDocument } from "./documents.ts";
import {
  count,
  formatAgo,
  formatBytes,
  formatDuration,
  formatElapsed,
  formatNumber,
  indicatorOf,
  matchesWords,
  statusParts,
  toneOfServer,
  toolBadge,
  toolCell,
} from "./format.ts";
import { Button, Dot, Empty, Header, Menu, Ready, SearchField, useNarrow } from "./parts.tsx";
import { ServerPage } from "./server.tsx";
import { actionsFor, bestActionFor } from "./server-actions.ts";
import { routeOfServer, routeTo, serverOf, serversOf, valueOf } from "./state.ts";
import { type Column, DataTable, MiddleCut } from "./table.tsx";

/** Number of servers above which there is a field to search them. */
const MANY = 8;

export function ServersView({ state, actions }: ViewProps) {
  const [words, setWords] = useState("");
  const isNarrow = useNarrow();
  const servers = serversOf(state);
  const page = serverOf(state.route);
  if (page !== undefined)
    return (
      <ServerPage
        key={page.name}
        name={page.name}
        part={page.part}
        state={state}
        actions={actions}
      />
    );
  const failed = servers.filter((server) => toneOfServer(server) === "bad").length;
  const shown = servers.filter(({ name, title, endpoint }) =>
    matchesWords(words, name, title, endpoint),
  );
  const stats = callStatsOf(valueOf(state.activity)?.calls ?? state.ended);
  return (
    <div key="list">
      <Header title="Servers" about={servers.length === 0 ? undefined : indicatorOf(servers).title}>
        {failed > 0 && (
          <Button
            key="failed"
            kind="primary"
            text={`Retry failed (${failed})`}
            onPress={() => actions.reconnectFailed()}
          />
        )}
        {servers.length > MANY && (
          <SearchField key="search" label="Search servers" value={words} onInput={setWords} />
        )}
        <a key="add" class="button" href="#/add">
          Add a server
        </a>
      </Header>
      <Ready
        of={state.servers}
        what="a list of servers"
        icon="servers"
        draw={() =>
          servers.length === 0 ? (
            <NoServers state={state} />
          ) : (
            <DataTable
              items={shown}
              columns={columnsFor(state.now, stats, isNarrow, actions)}
              label="Servers"
              height={isNarrow ? 84 : 66}
              keyOf={({ name }) => name}
              rowOf={({ name, state: its }) => ({ "data-server": name, "data-state": its })}
            />
          )
        }
      />
    </div>
  );
}

/** Shown if the hub has no servers. Offers to import the servers of the MCP client that has the most servers. */
function NoServers({ state }: Pick<ViewProps, "state">) {
  const [app] = (valueOf(state.apps) ?? [])
    .filter(({ servers, installed }) => servers > 0 && !installed)
    .toSorted((a, b) => b.servers - a.servers);
  return (
    <Empty icon="servers" title="No servers yet">
      <p>
        {app === undefined
          ? "Import them from an MCP client, or add one."
          : `${app.title} has ${count(app.servers, "server")}. Its file then has toolmux instead, and this can be undone.`}
      </p>
      <p class="actions">
        {app === undefined ? (
          <a key="connect" class="button primary" href="#/connect">
            Import them
          </a>
        ) : (
          <a key="import" class="button primary" href={routeTo("connect", app.name)}>
            Import them from {app.title}
          </a>
        )}
        <a class="button" href="#/add">
          Add a server
        </a>
      </p>
    </Empty>
  );
}

/** Order of the tones when servers are sorted by their state: those that need a person come first. */
const TONE_ORDER = ["bad", "busy", "good", "quiet"];

function columnsFor(
  now: number,
  stats: ReadonlyMap<string, CallStats>,
  isNarrow: boolean,
  actions: Actions,
): readonly Column<ServerDocument>[] {
  const of = ({ name }: ServerDocument): CallStats | undefined => stats.get(name);
  const uptimeOf = ({ state, since }: ServerDocument): number | undefined =>
    state === "connected" && since !== undefined ? Math.max(0, now - since) : undefined;
  const number = (
    name: string,
    width: string,
    from: number,
    sortBy: (server: ServerDocument) => number | undefined,
    format: (value: number) => string,
  ): Column<ServerDocument> => ({
    name,
    width,
    from,
    isNumber: true,
    sortBy,
    draw(server) {
      const value = sortBy(server);
      return value === undefined ? "" : format(value);
    },
  });
  return [
    {
      name: "Server",
      width: "minmax(0, 10fr)",
      sortBy: ({ name, title }) => title ?? name,
      draw: (server) => <NameCell server={server} now={now} isNarrow={isNarrow} />,
    },
    {
      name: "State",
      width: "minmax(0, 9fr)",
      from: 620,
      sortBy: (server) => TONE_ORDER.indexOf(toneOfServer(server)),
      draw: (server) => <StateCell server={server} now={now} />,
    },
    {
      name: "Tools",
      width: "4.6rem",
      from: 660,
      isNumber: true,
      sortBy: ({ shown }) => shown,
      draw: (server) => (server.state === "connected" || server.shown > 0 ? toolCell(server) : ""),
    },
    number("Calls", "4rem", 740, ({ calls }) => calls, formatNumber),
    number("Errors", "4rem", 1000, (server) => of(server)?.errors, formatNumber),
    number("Median", "4.8rem", 1000, (server) => of(server)?.median, formatDuration),
    number(
      "Last call",
      "6rem",
      860,
      (server) => of(server)?.last,
      (at) => formatAgo(at, now),
    ),
    number("Memory", "5rem", 1120, ({ memory }) => memory, formatBytes),
    number("Uptime", "5rem", 1160, uptimeOf, formatElapsed),
    {
      name: "Actions",
      width: isNarrow ? "auto" : "8.4rem",
      draw: (server) => <ActionCell server={server} isNarrow={isNarrow} actions={actions} />,
    },
  ];
}

/** The reason of a failure first, because it says what to do. @param isNarrow whether no other column has the tools */
function StateCell({
  server,
  now,
  isNarrow = false,
}: {
  readonly server: ServerDocument;
  readonly now: number;
  readonly isNarrow?: boolean;
}) {
  const { standing, reason } = statusParts(server, now);
  const tone = toneOfServer(server);
  return (
    <div class="state-cell">
      {reason !== undefined && (
        <span key="reason" class={`about two-lines ${tone}`} title={reason}>
          {reason}
        </span>
      )}
      <span class={`about clip ${tone}`}>
        {isNarrow && server.shown > 0 ? `${standing} · ${toolBadge(server)}` : standing}
      </span>
    </div>
  );
}

function NameCell({
  server,
  now,
  isNarrow,
}: {
  readonly server: ServerDocument;
  readonly now: number;
  readonly isNarrow: boolean;
}) {
  const { name, title, icon, endpoint, inFlight, pending = 0 } = server;
  const tone = toneOfServer(server);
  return (
    <div class="with-dot">
      <Dot tone={tone} />
      <div class="stack">
        <span class="pair-line">
          <a class="row-link name clip" href={routeTo("servers", name)}>
            {icon !== undefined && isCharacter(icon) ? `${icon} ` : ""}
            {title ?? name}
          </a>
          {inFlight > 0 && (
            <span key="busy" class="badge busy">
              {count(inFlight, "call")}
            </span>
          )}
          {pending > 0 && (
            <span key="pending" class="badge bad">
              {formatNumber(pending)} not accepted
            </span>
          )}
        </span>
        {isNarrow ? (
          <StateCell key="state" server={server} now={now} isNarrow={true} />
        ) : (
          <MiddleCut key="endpoint" class="about small" text={endpoint ?? ""} />
        )}
      </div>
    </div>
  );
}

function ActionCell({
  server,
  isNarrow,
  actions,
}: {
  readonly server: ServerDocument;
  readonly isNarrow: boolean;
  readonly actions: Actions;
}) {
  const { name } = server;
  const best = bestActionFor(server, actions);
  const parts = [
    { text: "View logs", onSelect: () => void (location.hash = routeOfServer(name, "logs")) },
    { text: "Edit", onSelect: () => void (location.hash = routeOfServer(name, "config")) },
  ];
  const others = actionsFor(server, actions);
  const items = [
    ...others,
    ...parts.filter(({ text }) => others.every((one) => one.text !== text)),
  ];
  return (
    <div class="actions">
      {best !== undefined && (
        <Button
          key="action"
          text={best.text}
          label={`${best.text} ${name}`}
          onPress={best.onSelect}
        />
      )}
      {!isNarrow && <Menu key="menu" label={`Actions for ${name}`} items={items} />}
    </div>
  );
}

/** Whether an icon is a character. Otherwise, it may be the URL of a picture, which the page does not load. */
function isCharacter(icon: string): boolean {
  return icon.length <= 8 && !icon.includes(":");
}
