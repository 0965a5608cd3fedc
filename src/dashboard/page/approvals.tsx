import type { ViewProps } from "./actions.ts";
import type { ApprovalDocument } from "./documents.ts";
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
              {approvals.map((approval) => (
                <li key={approval.id}>
                  <ApprovalCard approval={approval} now={state.now} actions={actions} />
                </li>
              ))}
            </ul>
          )
        }
      />
      <Remembered state={state} actions={actions} />
    </div>
  );
}

const SOURCES: Readonly<Record<string, string>> = {
  terminal: "in a terminal",
  dashboard: "on this page",
  client: "at the client",
};

/** What was allowed before and counts for later calls: by whom and for whom. */
function Remembered({ state, actions }: Pick<ViewProps, "state" | "actions">) {
  if (state.remembered.length === 0) return null;
  return (
    <section>
      <h2 class="part">Remembered</h2>
      <ul class="plain cards">
        {state.remembered.map(({ id, server, tool, decision, by, client, clientName, at }) => (
          <li key={id} class="card panel" data-remembered={id}>
            <h3 class="mono">
              {tool} of {server}
            </h3>
            <p class="about">
              {decision === "always" ? "for all clients" : `for ${client ?? "its client"} alone`} ·
              decided {SOURCES[by ?? ""] ?? "at an unknown place"}, for a call of{" "}
              {clientName || "a client"}, {formatElapsed(Math.max(0, state.now - at))} ago
            </p>
            <p class="actions">
              <Button
                text="Forget"
                label={`Forget that ${tool} of ${server} is allowed`}
                onPress={() => actions.forgetApproval(id)}
              />
            </p>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** A call that waits for an approval, with a button for each decision. */
export function ApprovalCard({
  approval,
  now,
  actions,
}: {
  readonly approval: ApprovalDocument;
  readonly now: number;
  readonly actions: ViewProps["actions"];
}) {
  const { id, server, tool, name, clientName, client, agent, argumentsShown, askedAt } = approval;
  const { choices, principal, reason } = approval;
  const asker = (principal ?? (clientName || client)) || "A client";
  const who = agent === undefined ? asker : `Agent ${agent} of ${asker}`;
  return (
    <div class="card panel approval" data-approval={id}>
      <h2>
        <span class="mono">{name}</span>
      </h2>
      <p class="about">
        {who} wants to run {tool} of {server}
        {askedAt === undefined ? "" : ` · asked ${formatElapsed(Math.max(0, now - askedAt))} ago`}
      </p>
      <p>{reason ?? ""}</p>
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
    </div>
  );
}
