import { useEffect, useRef, useState } from "hono/jsx/dom";
import type { ViewProps } from "./app.tsx";
import type { LogEntryDocument, LogLevel } from "./documents.ts";
import { count, filterLog, formatTime } from "./format.ts";
import { Button, Choice, copyText, Empty, Header, Ready, Rows, SearchField } from "./parts.tsx";
import { routeTo, serversOf } from "./state.ts";

/** The name of the hub's own log in the URL. The colon tells it apart from servers, whose names have none. */
const HUB_LOG = "toolmux:";
const ALL = "";
const LINE_HEIGHT = 22;

const LEVELS: readonly (readonly [LogLevel, string])[] = [
  ["debug", "all"],
  ["info", "info and above"],
  ["warn", "warnings and errors"],
  ["error", "errors"],
];

export function LogsView({ state, actions }: ViewProps) {
  const { route, log } = state;
  const [level, setLevel] = useState<LogLevel>("debug");
  const [text, setText] = useState("");
  const [isFollowing, setFollowing] = useState(true);
  const [chosen, setChosen] = useState<LogEntryDocument | undefined>(undefined);
  const scroller = useRef<HTMLDivElement>(null);
  const all = log.entries.kind === "ready" ? log.entries.value : [];
  const lines = filterLog(all, level, text);
  const last = lines.at(-1)?.seq;
  useEffect(() => {
    const { current } = scroller;
    if (isFollowing && current !== null) current.scrollTop = current.scrollHeight;
  }, [isFollowing, last, lines.length]);
  const onScroll = (): void => {
    const { current } = scroller;
    if (current === null) return;
    const isAtEnd = current.scrollHeight - current.scrollTop - current.clientHeight < LINE_HEIGHT;
    if (isAtEnd !== isFollowing) setFollowing(isAtEnd);
  };
  return (
    <div class="fill">
      <Header
        title="Logs"
        about={`The last ${count(lines.length, "line")}; only those since this hub started.`}
      >
        <Choice
          label="Of"
          value={route.item ?? ALL}
          options={[
            [ALL, "everything"],
            [HUB_LOG, "the hub itself"],
            ...serversOf(state).map(({ name, title }) => [name, title ?? name] as const),
          ]}
          onChoose={(name) =>
            void (location.hash = routeTo("logs", name === ALL ? undefined : name))
          }
        />
        <Choice label="Level" value={level} options={LEVELS} onChoose={setLevel} />
        <SearchField label="Filter" value={text} onInput={setText} />
        <label class="check">
          <input
            type="checkbox"
            checked={isFollowing}
            onChange={({ target }) => setFollowing((target as HTMLInputElement).checked)}
          />
          Follow
        </label>
      </Header>
      <Ready
        of={log.entries}
        what="this log"
        icon="logs"
        draw={() => (
          <div
            ref={scroller}
            class="log card"
            data-scroll="log"
            tabindex={0}
            role="region"
            aria-label="Log lines"
            onScroll={onScroll}
          >
            {lines.length === 0 ? (
              <Empty
                key="none"
                icon="logs"
                title={all.length === 0 ? "Nothing was logged yet" : "No line matches"}
              >
                {all.length === 0
                  ? "Lines of stderr and of the hub appear here as they come."
                  : "Choose a lower level or another filter."}
              </Empty>
            ) : (
              <Rows
                key="lines"
                items={lines}
                height={LINE_HEIGHT}
                label="Log lines"
                keyOf={({ seq }) => seq}
                draw={(line) => (
                  <button
                    type="button"
                    class={`line ${line.level}`}
                    onClick={() => setChosen(line.seq === chosen?.seq ? undefined : line)}
                  >
                    <time>{formatTime(line.at)}</time>
                    <span class="level">{line.level}</span>
                    <span class="from">{line.server ?? "toolmux"}</span>
                    <span class="text">{line.text}</span>
                  </button>
                )}
              />
            )}
          </div>
        )}
      />
      {chosen !== undefined && (
        <section key="chosen" class="card whole-line" aria-label="The chosen line">
          <p class="about">
            {new Date(chosen.at).toISOString()} · {chosen.level} · {chosen.server ?? "toolmux"} ·{" "}
            {chosen.source}
          </p>
          <pre tabindex={0}>{chosen.text}</pre>
          <p class="actions">
            <Button
              text="Copy"
              onPress={() => void copyText(chosen.text).then(() => actions.notify("Copied."))}
            />
            <Button text="Close" onPress={() => setChosen(undefined)} />
          </p>
        </section>
      )}
    </div>
  );
}
