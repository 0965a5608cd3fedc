import { type Child, memo, useLayoutEffect, useRef, useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import {
  blocksOf,
  type Chat,
  type ChatCall,
  type ChatItem,
  type ChatRun,
  emptyChat,
  wordsOf,
} from "./chat.ts";
import { SecretForm } from "./configure.tsx";
import type { AgentDocument, ConversationDocument, RunDocument } from "./documents.ts";
import {
  count,
  formatAgo,
  formatBytes,
  formatDuration,
  formatElapsed,
  formatNumber,
} from "./format.ts";
import { Button, Choice, copyText, Dot, Empty, Facts, Header, Icon, Ready } from "./parts.tsx";
import { Question } from "./question.tsx";
import { FULL_MODE, routeOfRun, routeTo, runOf, valueOf } from "./state.ts";

const EXAMPLE = `[agents.notes]
model = "anthropic/claude-sonnet-4-5"
instruction = "You keep notes."
tools = { servers = ["files", "memory"] }`;

/**
 * Maximum difference between the start of a call in the list of calls and in the conversation's event about it, in ms.
 */
const CLOCK_ERROR = 500;

export function AgentsView({ state, actions }: ViewProps) {
  const { item } = state.route;
  const runId = runOf(state.route);
  return (
    <div class="fill">
      <Header title="Agents" about="Models that work for you, with the tools of your servers." />
      <Ready
        of={state.agents}
        what="agents"
        icon="agents"
        draw={(agents) => {
          const runs = valueOf(state.runs) ?? [];
          const kept = (valueOf(state.conversations) ?? []).filter(({ open }) => !open);
          if (agents.length === 0 && runs.length === 0 && kept.length === 0)
            return (
              <Empty key="none" icon="agents" title="No agents yet">
                <p>
                  An agent is a model that uses your tools. Agents are described in the manifest.
                </p>
                <p class="actions">
                  <Button
                    text="Copy an example"
                    onPress={() =>
                      void copyText(EXAMPLE).then(() =>
                        actions.notify("Copied. Put it into the manifest."),
                      )
                    }
                  />
                </p>
                <details>
                  <summary>The example</summary>
                  <pre tabindex={0}>{EXAMPLE}</pre>
                </details>
              </Empty>
            );
          const agent = agents.find(({ name }) => name === item);
          return (
            <div key="split" class={item === undefined ? "split" : "split chosen"}>
              <Side
                state={state}
                actions={actions}
                agents={agents}
                runs={runs.toSorted((a, b) => b.startedAt - a.startedAt)}
                kept={kept}
              />
              {runId !== undefined ? (
                <Conversation
                  key={runId}
                  state={state}
                  actions={actions}
                  chat={state.chat?.id === runId ? state.chat : emptyChat(runId)}
                  run={runs.find(({ id }) => id === runId)}
                  described={describedOf(
                    runs.find(({ id }) => id === runId),
                    agents,
                  )}
                  isKept={kept.some(({ id }) => id === runId)}
                />
              ) : agent !== undefined ? (
                <AgentPanel key={agent.name} state={state} actions={actions} agent={agent} />
              ) : (
                <Empty key="choose" icon="agents" title="Choose an agent">
                  {item === undefined
                    ? "Then write what it should do. A conversation is closed after an hour without a message; you can go on with those that are kept."
                    : `There is no agent "${item}".`}
                </Empty>
              )}
            </div>
          );
        }}
      />
    </div>
  );
}

/** The agent of a conversation, as the list describes it. */
function describedOf(
  run: RunDocument | undefined,
  agents: readonly AgentDocument[],
): AgentDocument | undefined {
  return agents.find(
    ({ name, file }) => file === run?.file && (file !== undefined || name === run?.agent),
  );
}

/** What an agent is called: one in a file by the file, because many are called `root` there. */
function nameOf(agent: string, file = agent): string {
  return file.slice(file.lastIndexOf("/") + 1);
}

function Side({
  state,
  actions,
  agents,
  runs,
  kept,
}: ViewProps & {
  readonly agents: readonly AgentDocument[];
  readonly runs: readonly RunDocument[];
  /** The conversations that are kept and not open. */
  readonly kept: readonly ConversationDocument[];
}) {
  const { item } = state.route;
  const current = (name: string): "true" | undefined => (item === name ? "true" : undefined);
  return (
    <div class="side" data-scroll="side">
      <ul class="card list" aria-label="Agents">
        {agents.map(({ name, model, usable, description }) => (
          <li key={name} data-agent={name}>
            <a href={routeTo("agents", name)} aria-current={current(name)}>
              <Dot tone={usable ? "good" : "bad"} />
              <span class="stack">
                <span class="name clip">{name}</span>
                <span class="about clip small">
                  {usable ? (description ?? model ?? "") : "cannot be used yet"}
                </span>
              </span>
            </a>
          </li>
        ))}
      </ul>
      <h2 class="part">Conversations</h2>
      {runs.length === 0 ? (
        <p key="none" class="about">
          None is open.
        </p>
      ) : (
        <ul key="runs" class="card list" aria-label="Conversations">
          {runs.map(({ id, agent, file, title, state: now, startedAt }) => (
            <li key={id} data-run={id}>
              <a href={routeOfRun(id)} aria-current={current(`run:${id}`)}>
                <Dot tone={now === "running" ? "busy" : "quiet"} />
                <span class="stack">
                  <span class="name clip">{title}</span>
                  <span class="about clip small">
                    {nameOf(agent, file)} ·{" "}
                    {now === "running" ? "at work" : formatAgo(startedAt, state.now)}
                  </span>
                </span>
              </a>
              <button
                type="button"
                class="icon-button"
                aria-label={`Close the conversation "${title}"`}
                onClick={() => actions.closeRun(id)}
              >
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      {kept.length > 0 && (
        <div key="kept">
          <h2 class="part">Earlier conversations</h2>
          <ul class="card list" aria-label="Earlier conversations">
            {kept.map(({ id, agent, title, lastUsed }) => (
              <li key={id} data-kept={id}>
                <a href={routeOfRun(id)} aria-current={current(`run:${id}`)}>
                  <span class="stack">
                    <span class="name clip">{title}</span>
                    <span class="about clip small">
                      {nameOf(agent)} · {formatAgo(lastUsed, state.now)}
                    </span>
                  </span>
                </a>
                <ForgetButton title={title} onForget={() => actions.forgetRun(id)} />
              </li>
            ))}
          </ul>
        </div>
      )}
    </div>
  );
}

/** A button that forgets a conversation when it is pressed twice. */
function ForgetButton({
  title,
  onForget,
}: {
  readonly title: string;
  readonly onForget: () => void;
}) {
  const [isAsked, setAsked] = useState(false);
  return isAsked ? (
    <Button key="sure" text="Forget" label={`Forget "${title}" for good`} onPress={onForget} />
  ) : (
    <button
      key="ask"
      type="button"
      class="icon-button"
      aria-label={`Forget the conversation "${title}"`}
      onClick={() => setAsked(true)}
    >
      <Icon name="close" />
    </button>
  );
}

function BackLink() {
  return (
    <a class="back" href={routeTo("agents")}>
      ‹ All agents
    </a>
  );
}

/** The panel that describes an agent, with a field for the first message of a new conversation. */
function AgentPanel({ state, actions, agent }: ViewProps & { readonly agent: AgentDocument }) {
  const { name, model, description, instruction, tools, subAgents, handoffs } = agent;
  const { usable, problem = "", welcome, prompts, notes = [] } = agent;
  const [mode, setMode] = useState(FULL_MODE);
  const [, secret] = /toolmux secret set ([\w./-]*\w)/.exec(problem) ?? [];
  return (
    <section class="chat card" aria-label={`The agent ${name}`}>
      <header class="chat-head">
        <BackLink />
        <h2>{name}</h2>
        <ModeChoice state={state} value={mode} onChoose={setMode} />
      </header>
      <div class="chat-log" tabindex={0} role="region" aria-label={`What ${name} is`}>
        <p>{description ?? ""}</p>
        {!usable && (
          <div key="problem" class="banner bad panel">
            <p class="about bad pre">{problem}</p>
            {secret === undefined ? (
              <p key="edit" class="about">
                Fix {agent.file ?? "its table in the manifest"}; it is read again when you come back
                to this view.
              </p>
            ) : (
              <ul key="secret" class="plain">
                <SecretForm
                  secret={{ name: secret, places: [], servers: [name], models: [] }}
                  actions={actions}
                />
              </ul>
            )}
          </div>
        )}
        {welcome !== undefined && <Text key="welcome" text={welcome} />}
        {notes.map((note, at) => (
          <p key={`note-${at}`} class="chat-note">
            {note}
          </p>
        ))}
        <Facts
          of={{
            Model: model,
            File: agent.file,
            "Servers of its own": agent.servers?.join(", "),
            "Gives tasks to": subAgents?.join(", "),
            "Hands over to": handoffs?.join(", "),
          }}
        />
        {instruction !== undefined && (
          <details key="prompt" open>
            <summary>Prompt</summary>
            <pre tabindex={0}>{instruction}</pre>
          </details>
        )}
        {tools !== undefined && (
          <details key="tools">
            <summary>{tools.length === 0 ? "No tools" : count(tools.length, "tool")}</summary>
            <p class="mono break">{tools.join(", ")}</p>
          </details>
        )}
      </div>
      <Composer
        draftOf={name}
        label={`Message to ${name}`}
        prompts={prompts}
        isRunning={false}
        isDisabled={!usable}
        onSend={(text) => actions.startRun(name, text, mode)}
      />
    </section>
  );
}

function Conversation({
  state,
  actions,
  chat,
  run,
  described,
  isKept,
}: ViewProps & {
  readonly chat: Chat;
  readonly run: RunDocument | undefined;
  readonly described: AgentDocument | undefined;
  /** Whether it is kept and not open. */
  readonly isKept: boolean;
}) {
  const { id, items, sent, isRunning, link, announcement, reason } = chat;
  const [mode, setMode] = useState<string | undefined>(undefined);
  const agent = chat.agent || (run?.agent ?? "");
  const about = described?.name ?? agent;
  const prompts = run?.prompts?.map(
    (name) =>
      described?.prompts?.find((prompt) => prompt.name === name) ?? { name, instruction: "" },
  );
  const calls = items.filter((item): item is ChatCall => item.kind === "call" && !item.end);
  const approvals = (valueOf(state.approvals) ?? []).filter(
    (one) => run !== undefined && one.client === run.client,
  );
  const isBusy = isRunning || sent.length > 0;
  const isGone = link === "gone";
  /**
   * Finds the number of a running call in the hub. The conversation does not contain the number, so the n-th running
   * call of a tool in the conversation is assumed to be the n-th call of that tool by the same client in the hub.
   */
  const numberOf = (call: ChatCall): number | undefined => {
    const isSame = ({ name }: { readonly name: string }): boolean => name === call.name;
    const earliest = Math.min(...calls.map(({ startedAt }) => startedAt)) - CLOCK_ERROR;
    return [...state.calls.values()].filter(
      (one) =>
        isSame(one) && run !== undefined && one.client === run.client && one.startedAt >= earliest,
    )[calls.filter(isSame).indexOf(call)]?.call;
  };
  /** The items of a run, with what the agents do that it has called as trees inside. */
  const drawItems = (inRun: string | undefined): Child[] =>
    items.map((item, at) => {
      if (item.run !== inRun) return null;
      if (item.kind === "agent")
        return (
          <NestedRun key={at} run={item} now={state.now}>
            {drawItems(item.id)}
          </NestedRun>
        );
      if (item.kind === "call" && item.end === undefined)
        return (
          <RunningCall
            key={at}
            call={item}
            now={state.now}
            number={numberOf(item)}
            onCancel={(number) => actions.cancelCall(number)}
          />
        );
      return <Item key={at} item={item} isLast={at === items.length - 1} />;
    });
  return (
    <section class="chat card" aria-label={`Conversation with ${agent}`}>
      <header class="chat-head">
        <BackLink />
        <h2>
          <a href={routeTo("agents", about)} title="Its model, prompt and tools">
            {nameOf(agent, run?.file)}
          </a>
        </h2>
        <span class={isBusy && !isGone ? "badge busy" : "badge"}>
          {isGone ? "closed" : isBusy ? "at work" : "idle"}
        </span>
        <span class="about clip">
          {run === undefined ? "" : `${run.model} · ${formatNumber(run.tokensUsed)} tokens`}
          {run?.leftOut !== undefined &&
            ` · the model does not get the first ${run.leftOut} messages`}
        </span>
        <ModeChoice
          state={state}
          value={mode ?? run?.mode ?? FULL_MODE}
          onChoose={(chosen) => setMode(chosen)}
        />
        <Button text="Close" label="Close the conversation" onPress={() => actions.closeRun(id)} />
      </header>
      <Log>
        {link === "opening" && items.length === 0 && (
          <p key="opening" class="about">
            Reading…
          </p>
        )}
        {described?.welcome !== undefined && <Text key="welcome" text={described.welcome} />}
        {drawItems(undefined)}
        {approvals.map((approval) => (
          <Question key={approval.id} approval={approval} now={state.now} actions={actions} />
        ))}
        {sent.map((text, at) => (
          <p key={`sent-${at}`} class="said waiting pre">
            {text}
          </p>
        ))}
        {isRunning && approvals.length === 0 && calls.length === 0 && (
          <p key="busy" class="about" aria-hidden="true">
            …
          </p>
        )}
        {isGone && (
          <p key="gone" class="chat-note bad">
            {reason ??
              (isKept
                ? "This conversation was closed, or the hub was restarted."
                : "The hub does not have this conversation any more: it was closed, or the hub was restarted.")}{" "}
            {isKept ? (
              <Button text="Go on" onPress={() => actions.reopenRun(id)} />
            ) : (
              <a href={routeTo("agents", about)}>Begin another</a>
            )}
          </p>
        )}
      </Log>
      <p class="unseen" role="status" aria-live="polite">
        {approvals.length > 0 ? "A call waits for your approval." : announcement}
      </p>
      <Composer
        draftOf={id}
        label={`Message to ${nameOf(agent, run?.file)}`}
        prompts={prompts}
        isRunning={isBusy && !isGone}
        isDisabled={isGone}
        onSend={(text) => actions.sendMessage(id, text, mode)}
        onStop={() => actions.stopRun(id)}
      />
    </section>
  );
}

/** The scrolling list of a conversation's items. It stays scrolled to the end until the reader scrolls up. */
function Log({ children }: { readonly children?: Child }) {
  const log = useRef<HTMLDivElement>(null);
  const follow = useRef({ isOn: true, top: 0 });
  useLayoutEffect(() => {
    const { current } = log;
    if (current !== null && follow.current?.isOn) current.scrollTop = current.scrollHeight;
  });
  const onScroll = (): void => {
    const { current } = log;
    if (current === null || follow.current === null) return;
    const { scrollTop: top, scrollHeight, clientHeight } = current;
    const isAtEnd = scrollHeight - top - clientHeight < 24;
    // Items that are added at the end do not change `scrollTop`. If it has decreased, the reader has scrolled up.
    const isOn = isAtEnd || (follow.current.isOn && top >= follow.current.top);
    follow.current = { isOn, top };
  };
  return (
    <div
      ref={log}
      class="chat-log"
      tabindex={0}
      role="log"
      aria-live="off"
      aria-label="Conversation"
      onScroll={onScroll}
    >
      {children}
    </div>
  );
}

/** A part of the conversation. It is drawn again only if it has changed. */
const Item = memo(({ item, isLast }: { readonly item: ChatItem; readonly isLast: boolean }) => {
  switch (item.kind) {
    case "message":
      return <p class="said pre">{item.text}</p>;
    case "text":
      return <Text text={item.text} />;
    case "thinking":
      return (
        <details class="thinking">
          <summary>{isLast ? "Thinking…" : "Thoughts"}</summary>
          <p class="pre about">{item.text}</p>
        </details>
      );
    case "call":
      return <EndedCall call={item} />;
    case "agent":
      return <span />;
    case "note":
      return <p class={item.isError ? "chat-note bad" : "chat-note"}>{item.text}</p>;
  }
});

/** What another agent does for the one that has called it. */
function NestedRun({
  run: { agent, task, startedAt, end },
  now,
  children,
}: {
  readonly run: ChatRun;
  readonly now: number;
  readonly children: Child;
}) {
  return (
    <details class="chat-call team" open>
      <summary>
        <Dot tone={end === undefined ? "busy" : end.isGood ? "good" : "bad"} />
        <span class="clip">
          <strong>{agent}</strong> <span class="about">{task}</span>
        </span>
        <span class={end?.isGood === false ? "about number bad" : "about number"}>
          {end?.text ?? formatElapsed(Math.max(0, now - startedAt))}
        </span>
      </summary>
      {children}
    </details>
  );
}

function Text({ text }: { readonly text: string }) {
  return (
    <div class="answer">
      {blocksOf(text).map(({ isCode, text: block }, at) =>
        isCode ? (
          <pre key={at} tabindex={0}>
            {block}
          </pre>
        ) : (
          <p key={at} class="pre">
            {wordsOf(block).map((word, index) =>
              word.kind === "code" ? (
                <code key={index}>{word.text}</code>
              ) : word.kind === "bold" ? (
                <strong key={index}>{word.text}</strong>
              ) : (
                <span key={index}>{word.text}</span>
              ),
            )}
          </p>
        ),
      )}
    </div>
  );
}

/** How a call has failed, in words, by error code. */
const FAILURES: Readonly<Record<string, string>> = {
  toolError: "failed",
  notApproved: "not allowed",
  cancelled: "cancelled",
};

function EndedCall({ call }: { readonly call: ChatCall }) {
  const { name, agent, arguments: args, end } = call;
  if (end === undefined) return <span />;
  const { isGood, error, duration, size, result: text } = end;
  const result = FAILURES[error ?? "toolError"] ?? error;
  return (
    <details class="chat-call">
      <summary>
        <Dot tone={isGood ? "good" : "bad"} />
        <span class="mono clip">{name}</span>
        <span class={isGood ? "about number" : "about number bad"}>
          {isGood ? formatBytes(size) : result} · {formatDuration(duration)}
        </span>
      </summary>
      <p class="about">Arguments, as {agent} gave them:</p>
      <pre tabindex={0}>{args}</pre>
      {text !== undefined && (
        <div key="result">
          <p class="about">Result:</p>
          <pre tabindex={0}>{text}</pre>
        </div>
      )}
    </details>
  );
}

function RunningCall({
  call: { name, arguments: args, startedAt, progress },
  now,
  number,
  onCancel,
}: {
  readonly call: ChatCall;
  readonly now: number;
  /** The number of the call in the hub; undefined if the call has not begun in the hub, or has just ended. */
  readonly number: number | undefined;
  readonly onCancel: (number: number) => void;
}) {
  return (
    <div class="chat-call running-call">
      <Dot tone="busy" />
      <span class="mono clip">
        {name} <span class="about">{progress ?? args}</span>
      </span>
      <span class="about number">{formatElapsed(Math.max(0, now - startedAt))}</span>
      <Button
        text="Cancel"
        label={`Cancel the call of ${name}`}
        isDisabled={number === undefined}
        onPress={() => number !== undefined && onCancel(number)}
      />
    </div>
  );
}

function ModeChoice({
  state,
  value,
  onChoose,
}: {
  readonly state: ViewProps["state"];
  readonly value: string;
  readonly onChoose: (mode: string) => void;
}) {
  const modes = valueOf(state.modes)?.modes ?? [];
  if (modes.length < 2) return <span class="space" />;
  const options = modes.map(({ name, title }) => [name, title ?? name] as const);
  return <Choice label="Mode" value={value} options={options} onChoose={onChoose} />;
}

/** Texts that were written but not sent, by the id of the conversation or the name of the agent. */
const drafts = new Map<string, string>();

/** The field in which a message is written. Enter sends it, Esc stops the agent. */
function Composer({
  draftOf,
  label,
  prompts = [],
  isRunning,
  isDisabled,
  onSend,
  onStop,
}: {
  readonly draftOf: string;
  readonly label: string;
  /** Prompts of the agent's file, each offered by its name. */
  readonly prompts?: AgentDocument["prompts"];
  readonly isRunning: boolean;
  readonly isDisabled: boolean;
  /** @returns whether it was sent */
  readonly onSend: (text: string) => Promise<boolean>;
  readonly onStop?: () => void;
}) {
  const field = useRef<HTMLTextAreaElement>(null);
  const send = (): void => {
    const { current } = field;
    const text = current?.value ?? "";
    if (current === null || isDisabled || text.trim() === "") return;
    current.value = "";
    drafts.delete(draftOf);
    current.focus();
    void onSend(text).then((isSent) => {
      if (!isSent && current.value === "") current.value = text;
    });
  };
  /** Writes the name of a prompt before what was written, which becomes its arguments. */
  const offer = (name: string): void => {
    const { current } = field;
    if (current === null) return;
    const written = current.value.replace(/^\/\S+\s*/, "");
    current.value = `/${name} ${written}`;
    drafts.set(draftOf, current.value);
    current.focus();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && isRunning) onStop?.();
  };
  return (
    <form
      class="composer"
      onSubmit={(event: Event) => {
        event.preventDefault();
        send();
      }}
    >
      {prompts.length > 0 && !isDisabled && (
        <ul key="prompts" class="prompts plain" aria-label="Prompts">
          {prompts.map(({ name, description, instruction }) => (
            <li key={name}>
              <button type="button" title={description ?? instruction} onClick={() => offer(name)}>
                /{name}
              </button>
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={field}
        rows={2}
        aria-label={label}
        placeholder={`${label} (Enter sends, Shift+Enter: new line)`}
        disabled={isDisabled}
        onInput={({ target }) => drafts.set(draftOf, (target as HTMLTextAreaElement).value)}
        onKeyDown={onKeyDown}
      >
        {drafts.get(draftOf) ?? ""}
      </textarea>
      <div class="actions">
        <Button text="Stop" isDisabled={!isRunning} onPress={() => onStop?.()} />
        <button type="submit" class="primary" disabled={isDisabled}>
          Send
        </button>
      </div>
    </form>
  );
}
