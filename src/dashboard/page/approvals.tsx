import type { ViewProps } from "./actions.ts";
import { formatElapsed } from "./format.ts";
import { Button, Empty, Header, Ready } from "./parts.tsx";
import { Question } from "./question.tsx";
import type { NotificationSetting } from "./state.ts";

export function ApprovalsView({ state, actions }: ViewProps) {
  return (
    <div>
      <Header title="Approvals" about="Calls that wait until you allow them.">
        <NotificationSwitch setting={state.notifications} actions={actions} />
      </Header>
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
                  <Question approval={approval} now={state.now} actions={actions} />
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

const NOTIFICATION_TEXTS: Readonly<Record<NotificationSetting, string>> = {
  on: "Desktop notifications are on",
  off: "Notify me on the desktop",
  blocked: "Your browser blocks notifications of this page",
};

function NotificationSwitch({
  setting,
  actions,
}: {
  readonly setting: NotificationSetting;
  readonly actions: ViewProps["actions"];
}) {
  return (
    <label class="choice">
      <input
        type="checkbox"
        checked={setting === "on"}
        disabled={setting === "blocked"}
        onChange={({ target }) => actions.setNotifications((target as HTMLInputElement).checked)}
      />
      <span>{NOTIFICATION_TEXTS[setting]}</span>
    </label>
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
