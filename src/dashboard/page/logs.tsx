import { type Child, useEffect, useRef, useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { LogEntryDocument, LogLevel } from "./documents.ts";
import { FilteredList, type ListFilter } from "./filtered-list.tsx";
import { count, formatTime } from "./format.ts";
import { Button, Choice, copyText, Header, Ready } from "./parts.tsx";
import { routeTo, serversOf } from "./state.ts";

/** The name of the hub's own log in the URL. The colon tells it apart from servers, whose names have none. */
const HUB_LOG = "toolmux:";
const ALL = "";
const LINE_HEIGHT = 22;

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];

const LEVEL_FILTER: ListFilter<LogEntryDocument> = {
  label: "Level",
  options: [
    ["", "all"],
    ["info", "info and above"],
    ["warn", "warnings and errors"],
    ["error", "errors"],
  ],
  matches: ({ level }, least) =>
    LEVELS.indexOf(level) >= LEVELS.findIndex((known) => known === least),
};

export function LogsView({ state, actions }: ViewProps) {
  const { route, log } = state;
  const [isFollowing, setFollowing] = useState(true);
  const [chosen, setChosen] = useState<LogEntryDocument | undefined>(undefined);
  const all = log.entries.kind === "ready" ? log.entries.value : [];
  return (
    <div class="fill">
      {route.view === "logs" && (
        <Header
          key="head"
          title="Logs"
          about={`The last ${count(all.length, "line")}; only those since this hub started.`}
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
        </Header>
      )}
      <Ready
        of={log.entries}
        what="this log"
        icon="logs"
        draw={() => (
          <FilteredList
            items={all}
            label="Log lines"
            icon="logs"
            height={LINE_HEIGHT}
            keyOf={({ seq }) => seq}
            search={{ label: "Filter", of: ({ text, server }) => [text, server] }}
            filters={[LEVEL_FILTER]}
            empty={[
              "Nothing was logged yet",
              "Lines of stderr and of the hub appear here as they come.",
            ]}
            noMatch={["No line matches", "Choose a lower level or another filter."]}
            controls={() => (
              <label class="choice" key="follow">
                <input
                  type="checkbox"
                  checked={isFollowing}
                  onChange={({ target }) => setFollowing((target as HTMLInputElement).checked)}
                />
                Follow
              </label>
            )}
            frame={(list, lines) => (
              <LogScroller
                key="log"
                list={list}
                length={lines.length}
                last={lines.at(-1)?.seq}
                isFollowing={isFollowing}
                onFollow={setFollowing}
              />
            )}
            draw={(line) => (
              <button
                type="button"
                class={`row line ${line.level}`}
                onClick={() => setChosen(line.seq === chosen?.seq ? undefined : line)}
              >
                <time>{formatTime(line.at)}</time>
                <span class="level wide">{line.level}</span>
                <span class="clip wide">{line.server ?? "toolmux"}</span>
                <span class="text clip">{line.text}</span>
              </button>
            )}
          />
        )}
      />
      {chosen !== undefined && (
        <section key="chosen" class="card panel" aria-label="The chosen line">
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

/** Scrolls the lines, and shows the last one as long as the view follows the log. */
function LogScroller({
  list,
  length,
  last,
  isFollowing,
  onFollow,
}: {
  readonly list: Child;
  readonly length: number;
  readonly last: number | undefined;
  readonly isFollowing: boolean;
  readonly onFollow: (isFollowing: boolean) => void;
}) {
  const scroller = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const { current } = scroller;
    if (isFollowing && current !== null) current.scrollTop = current.scrollHeight;
  }, [isFollowing, last, length]);
  const onScroll = (): void => {
    const { current } = scroller;
    if (current === null) return;
    const isAtEnd = current.scrollHeight - current.scrollTop - current.clientHeight < LINE_HEIGHT;
    if (isAtEnd !== isFollowing) onFollow(isAtEnd);
  };
  return (
    <div
      ref={scroller}
      class="log card"
      data-scroll="log"
      tabindex={0}
      role="region"
      aria-label="Log lines"
      onScroll={onScroll}
    >
      {list}
    </div>
  );
}
