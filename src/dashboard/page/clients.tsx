import { nameOfClient } from "../../base/client-name.ts";
import type { ViewProps } from "./actions.ts";
import type { ModesDocument } from "./documents.ts";
import { count, formatAgo, formatNumber, formatTokens } from "./format.ts";
import { Choice, Empty, Header } from "./parts.tsx";
import { type DashboardState, routeTo, valueOf } from "./state.ts";

const TRANSPORTS: Readonly<Record<string, string>> = {
  stdio: "stdio",
  shared: "stdio, shared hub",
  http: "HTTP",
  memory: "in this process",
  control: "control socket",
};

/**
 * The value that is selected for a client without a mode of its own: it has the mode that is chosen for all clients.
 */
export const OF_ALL = "";

export function modeOptions(modes: ModesDocument["modes"]): readonly (readonly [string, string])[] {
  return [[OF_ALL, "as all"], ...modes.map(({ name, title }) => [name, title ?? name] as const)];
}

export function ClientsView({ state, actions }: ViewProps) {
  const modes = valueOf(state.modes);
  const { clients } = state;
  return (
    <div>
      <Header
        title="Clients"
        about={clients.length === 0 ? undefined : `${count(clients.length, "client")} connected`}
      />
      {clients.length === 0 ? (
        <Empty key="none" icon="clients" title="No client is connected">
          <p>An MCP client that starts toolmux, or connects to it over HTTP, is listed here.</p>
          <p class="actions">
            <a class="button primary" href="#/connect">
              Connect a client
            </a>
          </p>
        </Empty>
      ) : (
        <ul key="some" class="plain cards grid">
          {clients.map((client) => {
            const { id, version, era, transport, since, calls, inFlight, canBeAsked } = client;
            const mode = modes?.modes.find((one) => one.clients.includes(id))?.name ?? OF_ALL;
            return (
              <li key={id} class="card panel">
                <h2>
                  {nameOfClient(client)} <span class="about">{version ?? ""}</span>
                </h2>
                <p class="about">
                  {[
                    id,
                    TRANSPORTS[transport] ?? transport,
                    era,
                    since && `connected ${formatAgo(since, state.now)}`,
                  ]
                    .filter(Boolean)
                    .join(" · ")}
                </p>
                <p>
                  {count(calls, "call")}
                  {inFlight > 0 ? `, ${formatNumber(inFlight)} in flight` : ""}
                </p>
                {client.modes !== undefined && client.modes.length > 0 && (
                  <p key="sees" class="about">
                    {describeModes(client.modes)}
                  </p>
                )}
                <p class="about">
                  {canBeAsked.length === 0
                    ? "It answers no questions of servers (sampling, elicitation, roots)."
                    : `It answers questions of servers: ${canBeAsked.join(", ")}.`}
                </p>
                {client.exposure !== undefined && (
                  <p key="tools" class="about">
                    {describeExposure(client.exposure)}
                  </p>
                )}
                {modes !== undefined && (
                  <Choice
                    key="mode"
                    label="Mode"
                    value={mode}
                    options={modeOptions(modes.modes)}
                    onChoose={(chosen) => actions.setMode(chosen === OF_ALL ? null : chosen, id)}
                  />
                )}
                <p>
                  <a href={routeTo("calls", `client:${nameOfClient(client)}`)}>Its calls</a>
                </p>
              </li>
            );
          })}
        </ul>
      )}
    </div>
  );
}

function describeExposure({
  expose,
  form,
  tokens,
}: NonNullable<DashboardState["clients"][number]["exposure"]>): string {
  const why = expose === form ? "" : ` (expose = ${expose})`;
  return `${HOW_TOOLS_COME[form]}${why}: ≈ ${formatTokens(tokens)} tokens.`;
}

const HOW_TOOLS_COME: Readonly<
  Record<NonNullable<DashboardState["clients"][number]["exposure"]>["form"], string>
> = {
  direct: "It gets all its tools in one list",
  search: "It searches for its tools",
  select: "It selects its tools",
};

function describeModes(modes: readonly string[]): string {
  const [first = "", second = ""] = modes;
  if (modes.length === 1) return `It sees only what ${first} shows.`;
  if (modes.length === 2) return `It sees only what both ${first} and ${second} show.`;
  return `It sees only what all of ${modes.join(", ")} show.`;
}
