import { useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { FleetDocument } from "./documents.ts";
import { count, formatDuration, formatMeasured, formatNumber } from "./format.ts";
import { Button, Dot, Empty, Header, Ready } from "./parts.tsx";
import { routeTo, valueOf } from "./state.ts";
import { type Column, DataTable, MiddleCut } from "./table.tsx";

type Machine = FleetDocument["machines"][number];
type Imported = FleetDocument["imported"][number];

/** Time without a sign of life after which a machine with open calls is looked at with doubt, in ms. */
const SILENT = 2000;

const MACHINE_COLUMNS: readonly Column<Machine>[] = [
  {
    name: "Machine",
    width: "minmax(7rem, 1fr)",
    sortBy: ({ name }) => name,
    draw: ({ name, version, leaving, open, silent }) => (
      <div class="with-dot">
        <Dot tone={leaving === true || (open > 0 && silent > SILENT) ? "busy" : "good"} />
        <div class="stack">
          <span class="mono clip" title={name}>
            {name}
          </span>
          <span class="about small clip">{leaving === true ? "It leaves." : version}</span>
        </div>
      </div>
    ),
  },
  {
    name: "Exports",
    width: "minmax(6rem, 2fr)",
    sortBy: ({ servers }) => servers.length,
    draw: ({ servers }) => (
      <span class="clip" title={servers.join(", ")}>
        {servers.join(", ") || "nothing"}
      </span>
    ),
  },
  {
    name: "Open calls",
    width: "minmax(4.5rem, 7rem)",
    isNumber: true,
    sortBy: ({ open }) => open,
    draw: ({ open }) => formatNumber(open),
  },
  {
    name: "Round trip",
    width: "minmax(4.5rem, 7rem)",
    isNumber: true,
    sortBy: ({ roundTrip }) => roundTrip,
    draw: ({ roundTrip }) => (roundTrip === undefined ? "–" : formatMeasured(roundTrip)),
  },
  {
    name: "Last heard of",
    width: "minmax(6rem, 8rem)",
    isNumber: true,
    from: 640,
    sortBy: ({ silent }) => silent,
    draw: ({ silent }) => `${formatDuration(silent)} ago`,
  },
];

const SERVER_COLUMNS: readonly Column<Imported>[] = [
  {
    name: "Server",
    width: "minmax(7rem, 1fr)",
    sortBy: ({ server }) => server,
    draw: ({ server, fleet }) => (
      <div class="stack">
        <a class="row-link name clip" href={routeTo("servers", server)}>
          {server}
        </a>
        <span class="about small clip">{fleet === server ? "" : `${fleet} of the fleet`}</span>
      </div>
    ),
  },
  {
    name: "Replicas",
    width: "minmax(6rem, 2fr)",
    sortBy: ({ machines }) => machines.length,
    draw: ({ machines }) =>
      machines.length === 0 ? (
        <span class="outcome bad">No machine exports it.</span>
      ) : (
        <span class="clip" title={machines.join(", ")}>
          {machines.join(", ")}
        </span>
      ),
  },
  {
    name: "Subject",
    width: "minmax(10rem, 2fr)",
    from: 640,
    draw: ({ subject }) => <MiddleCut text={subject} />,
  },
];

/** The machines of the fleet, the servers that this hub uses there, and what NATS says. */
export function FleetView({ state, actions }: ViewProps) {
  const [isPinging, setPinging] = useState(false);
  const fleet = valueOf(state.fleet);
  const ping = (): void => {
    setPinging(true);
    void actions.pingFleet().then(() => setPinging(false));
  };
  return (
    <div>
      <Header title="Fleet" about={fleet && describeMember(fleet)}>
        {fleet?.connected !== undefined && (
          <Button
            key="ping"
            text={isPinging ? "Pinging…" : "Ping"}
            label="Ping all machines"
            isDisabled={isPinging}
            onPress={ping}
          />
        )}
      </Header>
      <Ready
        of={state.fleet}
        what="a fleet"
        icon="fleet"
        draw={(document) =>
          document.isConfigured ? (
            <Members key="some" fleet={document} />
          ) : (
            <Empty key="none" icon="fleet" title="This hub is alone">
              <p>
                To use servers of other machines, write a table <code>fleet</code> with the{" "}
                <code>url</code> of a NATS server into your own manifest.
              </p>
            </Empty>
          )
        }
      />
    </div>
  );
}

/** The hub as a member of the fleet, in one line. */
function describeMember(fleet: FleetDocument): string | undefined {
  const { isConfigured, connected, name, exported } = fleet;
  if (!isConfigured) return undefined;
  if (connected === undefined) return "not connected";
  return `${name ?? "this hub"} at ${connected}, exports ${exported.join(", ") || "nothing"}`;
}

function Members({ fleet }: { readonly fleet: FleetDocument }) {
  const { connected, error, url, wanted, denied, machines, imported, requests } = fleet;
  const { total, refused, open } = requests;
  return (
    <div class="flow">
      {connected === undefined && (
        <div key="lost" class="banner bad">
          <p>
            <strong>This hub is not connected to NATS ({url.join(", ")}).</strong>{" "}
            {error ?? "It is connecting."}
          </p>
        </div>
      )}
      {wanted !== undefined && (
        <p key="wanted">
          Another hub is named {wanted}. Set another <code>fleet.name</code>.
        </p>
      )}
      {denied.length > 0 && (
        <section key="denied" class="card panel flow" aria-labelledby="denied">
          <h2 id="denied">NATS does not permit</h2>
          <ul class="plain mono">
            {denied.map((subject) => (
              <li key={subject} class="break">
                {subject}
              </li>
            ))}
          </ul>
        </section>
      )}
      {machines.length === 0 ? (
        <Empty key="alone" icon="fleet" title="No other machine is known">
          <p>Machines appear here as soon as a hub of theirs joins this NATS server.</p>
        </Empty>
      ) : (
        <DataTable
          key="machines"
          items={machines}
          columns={MACHINE_COLUMNS}
          label="Machines"
          height={52}
          keyOf={({ name }) => name}
          rowOf={({ name }) => ({ "data-machine": name })}
        />
      )}
      {imported.length > 0 && (
        <section key="imported" class="flow">
          <h2 class="part">Servers of the fleet</h2>
          <DataTable
            items={imported}
            columns={SERVER_COLUMNS}
            label="Servers of the fleet"
            height={52}
            keyOf={({ server }) => server}
            rowOf={({ server }) => ({ "data-imported": server })}
          />
        </section>
      )}
      {total > 0 && (
        <p key="requests" class="about">
          {count(total, "request")} of other machines so far, {formatNumber(refused)} refused,{" "}
          {formatNumber(open)} open.
        </p>
      )}
    </div>
  );
}
