import { useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import { CallTable } from "./calls.tsx";
import type { AlertDocument, ServerDocument } from "./documents.ts";
import {
  count,
  formatAgo,
  formatBytes,
  formatDuration,
  formatNumber,
  statusParts,
  statusText,
  toneOf,
  toneOfServer,
  toolBadge,
} from "./format.ts";
import { LogsView } from "./logs.tsx";
import { Button, Dot, Empty, Facts, FindingList, type MenuItem } from "./parts.tsx";
import { PendingPins } from "./pins.tsx";
import { actionsFor, bestActionFor, deleteServer } from "./server-actions.ts";
import { ServerConfig } from "./server-config.tsx";
import {
  openAlerts,
  routeOfServer,
  routeTo,
  SERVER_PARTS,
  type ServerPart,
  serversOf,
  valueOf,
} from "./state.ts";
import { MiddleCut } from "./table.tsx";
import { ToolTable } from "./tools.tsx";

const PART_TITLES: Readonly<Record<ServerPart, string>> = {
  overview: "Overview",
  tools: "Tools",
  logs: "Logs",
  calls: "Calls",
  config: "Config",
};

interface PartProps extends ViewProps {
  readonly server: ServerDocument;
}

/** The page of one server. */
export function ServerPage({
  name,
  part,
  state,
  actions,
}: ViewProps & { readonly name: string; readonly part: ServerPart }) {
  const server = serversOf(state).find((one) => one.name === name);
  if (server === undefined)
    return (
      <Empty
        key="none"
        icon="servers"
        title={state.servers.kind === "ready" ? `There is no server ${name}` : "Reading…"}
      >
        <p class="actions" id="view-title" tabindex={-1}>
          <a class="button" href={routeTo("servers")}>
            All servers
          </a>
        </p>
      </Empty>
    );
  const props = { server, state, actions };
  return (
    <div key="page" class={part === "logs" ? "fill server-page" : "server-page"}>
      <ServerHead {...props} part={part} />
      <div class="parts" role="navigation" aria-label={`Parts of ${name}`}>
        {SERVER_PARTS.map((one) => (
          <a
            key={one}
            href={routeOfServer(name, one)}
            aria-current={one === part ? "page" : undefined}
          >
            {PART_TITLES[one]}
            {one === "tools" && server.shown > 0 && (
              <span key="count" class="count">
                {formatNumber(server.shown)}
              </span>
            )}
          </a>
        ))}
      </div>
      {part === "overview" ? (
        <ServerOverview key="overview" {...props} />
      ) : part === "tools" ? (
        <ToolTable key="tools" state={state} actions={actions} server={name} />
      ) : part === "logs" ? (
        <LogsView key="logs" state={state} actions={actions} />
      ) : part === "calls" ? (
        <CallTable key="calls" state={state} actions={actions} server={name} />
      ) : (
        <ServerConfig key="config" {...props} />
      )}
    </div>
  );
}

function ServerHead({ server, state, actions, part }: PartProps & { readonly part: ServerPart }) {
  const [isDeleting, setDeleting] = useState(false);
  const { name, title, description, origin } = server;
  const isHere = ({ text }: MenuItem): boolean => part === "config" && text === "Edit";
  const offered = bestActionFor(server, actions);
  const best = offered === undefined || isHere(offered) ? undefined : offered;
  const tone = toneOfServer(server);
  const others = actionsFor(server, actions).filter(
    (item) => item.text !== offered?.text && !isHere(item),
  );
  const remove = (): void =>
    void deleteServer(server, actions).then((isDone) => {
      if (isDone) location.hash = routeTo("servers");
      else setDeleting(false);
    });
  return (
    <header class="view-head">
      <div class="stack">
        <p class="about small">
          <a href={routeTo("servers")}>Servers</a> / <span class="mono">{name}</span>
        </p>
        <h1 id="view-title" tabindex={-1}>
          {title ?? name}
        </h1>
        <p class="state-line">
          <Dot tone={tone} />
          <span class={`about break ${tone}`}>
            {part === "overview"
              ? statusParts(server, state.now).standing
              : statusText(server, state.now)}
          </span>
        </p>
        {description !== undefined && (
          <p key="description" class="about">
            {description}
          </p>
        )}
      </div>
      {isDeleting ? (
        <div key="sure" class="actions">
          <span>
            Delete {name}
            {origin === "manifest" ? " from the manifest" : ""}?
          </span>
          <Button text="Delete" kind="danger" label={`Delete ${name} now`} onPress={remove} />
          <Button text="Keep" onPress={() => setDeleting(false)} />
        </div>
      ) : (
        <div key="actions" class="actions">
          {best !== undefined && (
            <Button
              key="best"
              kind="primary"
              text={best.text}
              label={`${best.text} ${name}`}
              onPress={best.onSelect}
            />
          )}
          {others.map(({ text, onSelect }) => (
            <Button key={text} text={text} label={`${text} ${name}`} onPress={onSelect} />
          ))}
          <Button
            key="delete"
            kind="danger"
            text="Delete"
            label={`Delete ${name}`}
            onPress={() => setDeleting(true)}
          />
        </div>
      )}
    </header>
  );
}

function ServerOverview({ server, state, actions }: PartProps) {
  const { name, state: its, connections, lastError, failing } = server;
  const { now } = state;
  const hidden = (valueOf(state.tools)?.notes ?? []).filter((note) => note.server === name);
  const isTrouble = lastError !== undefined && its !== "connected";
  const url = its === "authenticating" ? server.progress?.url : undefined;
  const alerts = openAlerts(state).filter((alert) => alert.server === name);
  const suspicious = state.scanned.find((one) => one.server === name)?.findings ?? [];
  return (
    <div class="flow">
      {url !== undefined && isWebPage(url) && (
        <p key="login">
          <a class="button primary" href={url} target="_blank" rel="noreferrer noopener">
            Open the login page
          </a>
        </p>
      )}
      {state.pins?.server === name && (
        <PendingPins key="pins" pins={state.pins} now={now} actions={actions} />
      )}
      {isTrouble && <Trouble key="trouble" server={server} now={now} />}
      {alerts
        .filter(({ text }) => !isTrouble || text !== lastError.message)
        .map((alert) => (
          <AlertLine
            key={alert.id}
            alert={alert}
            onDismiss={() => actions.dismissAlert(alert.id)}
          />
        ))}
      <section class="card panel" aria-label="Facts">
        <Facts
          of={{
            "Command or URL": server.endpoint && (
              <MiddleCut key="endpoint" text={server.endpoint} />
            ),
            Tools: toolBadge(server),
            Calls: formatNumber(server.calls),
            "Last tool": server.lastTool,
            Prompts: server.prompts,
            Resources: server.resources,
            "Context cost":
              server.tokens && `about ${formatNumber(server.tokens)} tokens (estimated)`,
            "State since": server.since && formatAgo(server.since, now),
            "Failing since": failing && formatAgo(failing.since, now),
            "Failed attempts": failing && attemptsOf(server),
            "Started in": server.startDuration && formatDuration(server.startDuration),
            Memory: server.memory && formatBytes(server.memory),
            Process: server.pid,
            Transport: server.transport,
            Protocol: server.protocolVersion && `${server.protocolVersion} (${server.era ?? ""})`,
            Implementation: [server.implementation?.name, server.implementation?.version]
              .filter(Boolean)
              .join(" "),
            "Comes from":
              server.origin === "manifest" ? "the manifest" : "a command; gone when the hub ends",
          }}
        />
      </section>
      {connections.length > 1 && (
        <section key="connections" class="card panel">
          <h2>{count(connections.length, "connection")}</h2>
          <ul class="plain">
            {connections.map((connection) => (
              <li key={connection.id} class="state-line">
                <Dot tone={toneOf(connection.state)} />
                <span>{statusText(connection, now)}</span>
                <span class="about">
                  {[connection.separation?.text, connection.client, ...(connection.clients ?? [])]
                    .filter(Boolean)
                    .join(", ")}
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {suspicious.length > 0 && (
        <section key="suspicious" class="card panel" aria-label="Suspicious text">
          <h2>{count(suspicious.length, "suspicious text")}</h2>
          <FindingList findings={suspicious} />
        </section>
      )}
      {hidden.length > 0 && (
        <section key="hidden" class="card panel">
          <h2>{count(hidden.length, "tool")} hidden or changed</h2>
          <ul class="plain">
            {hidden.map(({ tool, text }) => (
              <li key={`${tool} ${text}`}>
                <span class="mono">{tool}</span> <span class="about">{text}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

/** The number of attempts that have failed, and the number after which no other one follows. */
function attemptsOf({ failing, maxAttempts }: ServerDocument): string {
  const attempts = formatNumber(failing?.attempts ?? 0);
  return maxAttempts === undefined ? attempts : `${attempts}; at most ${maxAttempts} in a row`;
}

/** Why a server does not run, what helps, and what it has written. */
function Trouble({ server, now }: { readonly server: ServerDocument; readonly now: number }) {
  const { state, lastError, failing, remedies = [] } = server;
  if (lastError === undefined) return <></>;
  const { message, at, stderr } = lastError;
  const isFailing = toneOfServer(server) === "bad";
  return (
    <section class="banner bad panel trouble-panel" aria-labelledby="why">
      <h2 id="why">{state === "failed" || isFailing ? "Why it fails" : "Its last error"}</h2>
      <p class="pre reason">{message}</p>
      {at !== undefined && (
        <p key="at" class="about">
          Tried {formatAgo(at, now)}
          {failing?.same === true ? ", the same error as before" : ""}.
        </p>
      )}
      {remedies.length > 0 && (
        <div key="remedies">
          <h3>What helps</h3>
          <ul class="remedies">
            {remedies.map((remedy) => (
              <li key={remedy}>{remedy}</li>
            ))}
          </ul>
          <p class="actions">
            <a class="button" href={routeOfServer(server.name, "config")}>
              Edit its settings
            </a>
          </p>
        </div>
      )}
      {stderr !== undefined && (
        <div key="stderr">
          <h3>The last lines that it wrote to stderr</h3>
          <pre tabindex={0} aria-label="The last lines of its stderr">
            {stderr.join("\n")}
          </pre>
        </div>
      )}
    </section>
  );
}

function AlertLine({
  alert,
  onDismiss,
}: {
  readonly alert: AlertDocument;
  readonly onDismiss: () => void;
}) {
  return (
    <div class="banner busy pair">
      <p>{alert.text}</p>
      <Button text="Dismiss" onPress={onDismiss} />
    </div>
  );
}

function isWebPage(url: string): boolean {
  return /^https?:\/\//i.test(url);
}
