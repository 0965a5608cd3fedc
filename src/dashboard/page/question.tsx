import { useEffect, useRef, useState } from "hono/jsx/dom";
import { nameOfClient } from "../../base/client-name.ts";
import type { Actions } from "./actions.ts";
import type { ApprovalDocument } from "./documents.ts";
import { count, formatElapsed } from "./format.ts";
import { hubNames } from "./hub-names.ts";
import { type DashboardState, questionsElsewhere, questionsOfOthers, routeTo } from "./state.ts";

/**
 * The question whether a call may be made, with a button for each decision: in the banner above every view, in the view
 * Approvals, and where the call was made.
 */

type Decision = ApprovalDocument["choices"][number];

const VERBS: Readonly<Record<Decision, string>> = {
  once: "Allow once",
  session: "Allow for this session",
  always: "Always allow",
  deny: "Deny",
};

const MEANINGS: Readonly<Record<Decision, string>> = {
  once: "Allow this call",
  session: "Allow this tool until the client disconnects",
  always: "Allow this tool from now on, for all clients",
  deny: "Do not allow this call",
};

/** The decisions that a person can make with a key while the question has the focus. */
const KEYS: Readonly<Record<string, Decision>> = { y: "once", n: "deny" };

/**
 * Time after a question has appeared or changed in which it takes no decision, in ms: what a person pressed or clicked
 * then was meant for something else.
 */
const SETTLE_TIME = 700;

/** Who makes the call, in words. */
export function callerOf({ agent, principal, clientName, client }: ApprovalDocument): string {
  const name = nameOfClient({ id: client, name: clientName, principal });
  return agent === undefined ? name : `Agent ${agent} of ${name}`;
}

export function Question({
  approval,
  now,
  actions,
  more = 0,
  isBanner = false,
}: {
  readonly approval: ApprovalDocument;
  readonly now: number;
  readonly actions: Actions;
  /** Number of further questions that are not shown. */
  readonly more?: number;
  /** Whether the arguments are cut to a few lines. */
  readonly isBanner?: boolean;
}) {
  const { id, server, tool, name, argumentsShown, askedAt, choices, reason } = approval;
  const { unavailable: { session, always } = {} } = approval;
  const [settled, setSettled] = useState("");
  const [decided, setDecided] = useState("");
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(id), SETTLE_TIME);
    return () => clearTimeout(timer);
  }, [id]);
  const isReady = settled === id && decided !== id;
  const decide = (decision: Decision): void => {
    if (!isReady || !choices.includes(decision)) return;
    setDecided(id);
    void actions.decide(id, decision).then((isDone) => {
      if (!isDone) setDecided("");
    });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const { key, repeat, ctrlKey, altKey, metaKey, shiftKey, isComposing } = event;
    const decision = KEYS[key.toLowerCase()];
    if (decision === undefined || repeat || isComposing) return;
    if (ctrlKey || altKey || metaKey || shiftKey) return;
    event.preventDefault();
    decide(decision);
  };
  return (
    <div
      ref={root}
      class={isBanner ? "question banner busy panel" : "question card panel approval"}
      data-approval={id}
      role="group"
      aria-label={`Question about a call of ${name}`}
      tabindex={0}
      onKeyDown={onKeyDown}
    >
      <div>
        <h2>
          {callerOf(approval)} wants to run <span class="mono">{name}</span>
        </h2>
        <p class="about">
          {tool} of {server}
          {askedAt > 0 ? ` · waits for ${formatElapsed(Math.max(0, now - askedAt))}` : ""}
          {more > 0 && (
            <span key="more">
              {" · "}
              <a href={routeTo("approvals")}>{count(more, "more question")}</a>
            </span>
          )}
        </p>
      </div>
      <p>{reason}</p>
      <pre tabindex={0} aria-label="Arguments">
        {isBanner ? shortened(argumentsShown) : argumentsShown}
      </pre>
      <div class="actions">
        {choices.map((choice) => {
          const key = Object.keys(KEYS).find((one) => KEYS[one] === choice);
          return (
            <button
              key={choice}
              type="button"
              class={choice === "once" ? "primary" : choice === "deny" ? "danger" : ""}
              aria-label={`${VERBS[choice]}: ${MEANINGS[choice]}, ${name}`}
              aria-disabled={isReady ? undefined : "true"}
              aria-keyshortcuts={key}
              title={MEANINGS[choice]}
              onClick={() => decide(choice)}
            >
              {VERBS[choice]}
            </button>
          );
        })}
        <span class="about small keys" key="keys">
          While this has the focus: <kbd>y</kbd> allows once, <kbd>n</kbd> denies
        </span>
      </div>
      {[
        [VERBS.session, session],
        [VERBS.always, always],
      ].map(([verb, why]) =>
        why === undefined ? null : (
          <p key={verb} class="about small why-not">
            {verb} is not possible. {why}
          </p>
        ),
      )}
    </div>
  );
}

/** The oldest question that is not shown where its call was made, above every view but Approvals, which shows all. */
export function QuestionBanner({
  state,
  actions,
}: {
  readonly state: DashboardState;
  readonly actions: Actions;
}) {
  const [question, ...others] = state.route.view === "approvals" ? [] : questionsElsewhere(state);
  const hadFocus = useRef(false);
  const isGone = question === undefined;
  useEffect(() => {
    // The focus would be lost with the last question.
    if (isGone && hadFocus.current) document.getElementById("view-title")?.focus();
    hadFocus.current = false;
  }, [isGone]);
  return (
    <div
      class="banners questions"
      role="region"
      aria-label="Questions"
      aria-live="polite"
      onFocusIn={() => void (hadFocus.current = true)}
      onFocusOut={({ relatedTarget }: FocusEvent) => {
        if (relatedTarget !== null) hadFocus.current = false;
      }}
    >
      {question !== undefined && (
        <Question
          key="question"
          approval={question}
          now={state.now}
          actions={actions}
          isBanner={true}
          more={others.length}
        />
      )}
      {state.route.view !== "hubs" && <OtherHubs key="others" state={state} actions={actions} />}
    </div>
  );
}

/** A line for each hub that is not shown and has questions. */
function OtherHubs({
  state,
  actions,
}: {
  readonly state: DashboardState;
  readonly actions: Actions;
}) {
  const { hubs, hubClients } = state;
  const names = hubNames(hubs, hubClients);
  return (
    <>
      {questionsOfOthers(state).map(({ id, approvals }) => {
        const [first] = approvals;
        const name = names.get(id) ?? "another hub";
        return first === undefined ? null : (
          <div key={id} class="banner busy pair" data-elsewhere={id}>
            <p>
              <strong>
                {callerOf(first)} wants to run <span class="mono">{first.name}</span>
              </strong>{" "}
              in the hub {name}
              {approvals.length > 1 ? ` · ${count(approvals.length - 1, "more question")}` : ""}
            </p>
            <button
              type="button"
              class="primary"
              aria-label={`Answer in ${name}`}
              onClick={() => actions.openHub(id, "approvals")}
            >
              Answer
            </button>
          </div>
        );
      })}
    </>
  );
}

/** Longest JSON text, in UTF-16 units, that a banner shows in one line. */
const MAX_LINE = 90;

/** A JSON text without its line breaks, if it is short; else, or where that would change a value, the text itself. */
function shortened(json: string): string {
  try {
    const value: unknown = JSON.parse(json);
    const line = JSON.stringify(value);
    const isSame = JSON.stringify(value, null, 2) === json;
    return isSame && line.length <= MAX_LINE ? line : json;
  } catch {
    return json;
  }
}
