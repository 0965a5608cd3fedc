import { type Child, useEffect, useMemo, useRef, useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { LogEntryDocument, LogLevel } from "./documents.ts";
import { FilteredList, type ListFilter } from "./filtered-list.tsx";
import { count, formatDateTime, formatTime } from "./format.ts";
import { Button, Choice, copyText, Header, Ready } from "./parts.tsx";
import { routeTo, serversOf } from "./state.ts";

/** The name of the hub's own log in the URL. The colon tells it apart from servers, whose names have none. */
const HUB_LOG = "toolmux:";
const ALL = "";
const LINE_HEIGHT = 22;
const NO_LINES: readonly LogEntryDocument[] = [];

/** A line of a log, and how often it came in a row. */
interface RepeatedLine extends LogEntryDocument {
  readonly times: number;
  /** The lines that this one stands for; undefined: itself. */
  readonly whole?: string;
}

/** Number of lines of stderr from which on they are told as one, if they were written before. */
const MIN_BLOCK = 3;

/**
 * The lines, with those that say the same one after another as one line: the last of them. So a server that prints the
 * same line again and again does not hide the others.
 */
export function groupRepeated(lines: readonly LogEntryDocument[]): readonly RepeatedLine[] {
  const groups: RepeatedLine[] = [];
  for (const line of lines) {
    const before = groups.at(-1);
    const isSame =
      before !== undefined &&
      before.text === line.text &&
      before.server === line.server &&
      before.source === line.source &&
      before.level === line.level;
    if (isSame) groups[groups.length - 1] = { ...line, times: before.times + 1 };
    else groups.push({ ...line, times: 1 });
  }
  return groups;
}

/**
 * The lines, in which lines of stderr that a server has written before, all of them in the same order, are one line. So
 * a server that fails again and again does not fill the log with its stack trace.
 */
export function foldRepeated(lines: readonly RepeatedLine[]): readonly RepeatedLine[] {
  const folded: RepeatedLine[] = [];
  const blocks = new Map<string | undefined, { readonly whole: string; readonly at: number }>();
  for (let from = 0; from < lines.length;) {
    const { source, server, at } = lines[from] as RepeatedLine;
    let to = from + 1;
    while (source === "stderr" && lines[to]?.source === source && lines[to]?.server === server)
      to++;
    const block = lines.slice(from, to);
    from = to;
    const last = block.at(-1);
    if (source !== "stderr" || last === undefined) {
      folded.push(...block);
      continue;
    }
    const whole = block.map(({ text }) => text).join("\n");
    const before = blocks.get(server);
    if (before?.whole === whole && block.length >= MIN_BLOCK) {
      const text = `the same ${block.length} lines as at ${formatTime(before.at)}`;
      folded.push({ ...last, text, times: 1, whole });
    } else {
      folded.push(...block);
      blocks.set(server, { whole, at });
    }
  }
  return folded;
}

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];

const LEVEL_FILTER: ListFilter<RepeatedLine> = {
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
  const [chosen, setChosen] = useState<RepeatedLine | undefined>(undefined);
  const all = log.entries.kind === "ready" ? log.entries.value : NO_LINES;
  const grouped = useMemo(() => foldRepeated(groupRepeated(all)), [all]);
  return (
    <div class="fill">
      {route.view === "logs" && (
        <Header
          key="head"
          title="Logs"
          about={`The last ${count(all.length, "line")}; only those since this hub started.`}
        >
          <Choice
            label="Lines of"
            value={route.item?.startsWith("?") === true ? ALL : (route.item ?? ALL)}
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
            items={grouped}
            label="Log lines"
            icon="logs"
            height={LINE_HEIGHT}
            keyOf={({ seq }) => seq}
            search={{
              label: "Filter",
              // A search of everything leads here with its words.
              ...(route.item?.startsWith("?") === true && { initial: route.item.slice(1) }),
              of: ({ text, whole = text, server }) => [whole, server],
            }}
            filters={[LEVEL_FILTER]}
            empty={[
              "Nothing was logged yet",
              "Lines of stderr and of the hub appear here as they come.",
              ["#/servers", "Show the servers"],
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
                class={`row line ${line.level} ${line.source === "stderr" ? "of-stderr" : ""}`}
                onClick={() => setChosen(line.seq === chosen?.seq ? undefined : line)}
              >
                <time>{formatTime(line.at)}</time>
                <span class="level wide">{line.source === "stderr" ? "stderr" : line.level}</span>
                <span class="clip wide">{line.server ?? "toolmux"}</span>
                <span class={line.whole === undefined ? "text clip" : "text about clip"}>
                  {line.times > 1 && (
                    <span key="times" class="times">
                      ×{line.times}
                    </span>
                  )}
                  {line.text}
                </span>
              </button>
            )}
          />
        )}
      />
      {chosen !== undefined && (
        <section key="chosen" class="card panel" aria-label="The chosen line">
          <p class="about">
            {formatDateTime(chosen.at)} · {chosen.level} · {chosen.server ?? "toolmux"} ·{" "}
            {chosen.source}
            {chosen.times > 1 ? ` · ${chosen.times} times in a row` : ""}
          </p>
          <pre tabindex={0}>{chosen.whole ?? chosen.text}</pre>
          <p class="actions">
            <Button
              text="Copy"
              onPress={() =>
                void copyText(chosen.whole ?? chosen.text).then(() => actions.notify("Copied."))
              }
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
