import type { ViewProps } from "./app.tsx";
import { formatElapsed } from "./format.ts";
import { Button, Empty, Header, Ready } from "./parts.tsx";

const CHOICES: Readonly<Record<string, string>> = {
  once: "Once",
  session: "Session",
  always: "Always",
  deny: "Deny",
};

const MEANINGS: Readonly<Record<string, string>> = {
  once: "Allow this call",
  session: "Allow this tool until the client leaves",
  always: "Allow this tool from now on",
  deny: "Do not allow this call",
};

export function ApprovalsView({ state, actions }: ViewProps) {
  return (
    <div>
      <Header title="Approvals" about="Calls that wait until you allow them." />
      <Ready
        of={state.approvals}
        what="approvals"
        icon="approvals"
        draw={(approvals) =>
          approvals.length === 0 ? (
            <Empty key="none" icon="approvals" title="Nothing waits for you">
              Servers and tools with <code>approval = "auto"</code> or <code>"always"</code> in the
              manifest ask here before they run.
            </Empty>
          ) : (
            <ul key="some" class="plain cards">
              {approvals.map((approval) => {
                const { id, server, tool, name, clientName, client, argumentsShown, askedAt } =
                  approval;
                const { choices, principal, agent } = approval;
                const who = (principal ?? (clientName || client)) || "A client";
                return (
                  <li key={id} class="card approval" data-approval={id}>
                    <h2>
                      <span class="mono">{name}</span>
                    </h2>
                    <p class="about">
                      {agent === undefined ? who : `Agent ${agent} of ${who}`} wants to run {tool}{" "}
                      of {server}
                      {askedAt === undefined
                        ? ""
                        : ` · asked ${formatElapsed(Math.max(0, state.now - askedAt))} ago`}
                    </p>
                    <p>{approval.reason ?? ""}</p>
                    <pre tabindex={0} aria-label="Arguments">
                      {argumentsShown ?? "No arguments."}
                    </pre>
                    <p class="actions">
                      {choices.map((choice) => (
                        <span key={choice} title={MEANINGS[choice]}>
                          <Button
                            text={CHOICES[choice] ?? choice}
                            label={`${CHOICES[choice] ?? choice}: ${MEANINGS[choice] ?? ""}, ${name}`}
                            kind={choice === "once" ? "primary" : choice === "deny" ? "danger" : ""}
                            onPress={() => actions.decide(id, choice)}
                          />
                        </span>
                      ))}
                    </p>
                  </li>
                );
              })}
            </ul>
          )
        }
      />
    </div>
  );
}
