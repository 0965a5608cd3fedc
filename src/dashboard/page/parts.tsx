import { type Child, useEffect, useRef, useState } from "hono/jsx/dom";
import type { ServerFindingsDocument } from "./documents.ts";
import type { Tone } from "./format.ts";
import type { Loaded } from "./state.ts";

/** Components that several views use. */

export type Key = string | number;

/** SVG paths of the icons, in a view box of 24 by 24. */
const ICONS = {
  hubs: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  overview: "M3 11l9-8 9 8M6 9v11h12V9M10 20v-6h4v6",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 1 0 0-14M16 16l5 5",
  light:
    "M12 8a4 4 0 1 0 0 8 4 4 0 1 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M5 19l1.500-1.500M17.500 6.500L19 5",
  dark: "M20 14a8.500 8.500 0 1 1-10-10 7 7 0 0 0 10 10",
  system: "M4 5h16v11H4zM9 20h6M12 5v11",
  servers: "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
  calls: "M4 12h4l3-8 4 16 2-8h3",
  approvals: "M12 3l8 3v6c0 5-3.5 8-8 9-4.5-1-8-4-8-9V6zM9 12l2 2 4-4",
  agents: "M12 3v4M5 7h14v12H5zM9 12v2M15 12v2M2 11v4M22 11v4",
  tools: "M14.5 6.5a4 4 0 0 1 5-3l-3 3 1 1 3-3a4 4 0 0 1-5.5 5L8 17.5a2 2 0 0 1-3-3z",
  modes:
    "M4 7h10M18 7h2M4 17h2M10 17h10M14 7a2 2 0 1 0 4 0 2 2 0 1 0-4 0M6 17a2 2 0 1 0 4 0 2 2 0 1 0-4 0",
  clients: "M3 5h18v11H3zM8 20h8M12 16v4",
  fleet:
    "M12 3a2.500 2.500 0 1 0 0 5 2.500 2.500 0 1 0 0-5M5 16a2.500 2.500 0 1 0 0 5 2.500 2.500 0 1 0 0-5M19 16a2.500 2.500 0 1 0 0 5 2.500 2.500 0 1 0 0-5M11 8l-4.500 8M13 8l4.500 8M7.500 18.500h9",
  logs: "M5 5h14M5 10h14M5 15h9M5 20h6",
  activity: "M12 3a9 9 0 1 0 9 9M12 7v5l3 2M16 3.8l.01 0M20 8l.01 0",
  usage: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  add: "M12 5v14M5 12h14",
  configure:
    "M12 9a3 3 0 1 0 0 6 3 3 0 1 0 0-6M12 2v4M12 18v4M2 12h4M18 12h4M5 5l2.8 2.8M16.2 16.2L19 19M5 19l2.8-2.8M16.2 7.8L19 5",
  connect: "M9 15l6-6M10 6l2-2a4.5 4.5 0 0 1 7 6l-2.5 2.5M14 18l-2 2a4.5 4.5 0 0 1-7-6l2.500-2.500",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  close: "M6 6l12 12M18 6L6 18",
} as const;

export type IconName = keyof typeof ICONS;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

export function Dot({ tone }: { readonly tone: Tone }) {
  return <span class={`dot ${tone}`} aria-hidden="true" />;
}

export function Header({
  title,
  about,
  children,
}: {
  readonly title: string;
  readonly about?: string | undefined;
  readonly children?: Child;
}) {
  return (
    <header class="view-head">
      <div>
        <h1 id="view-title" tabindex={-1}>
          {title}
        </h1>
        {about !== undefined && (
          <p key="about" class="about">
            {about}
          </p>
        )}
      </div>
      <div class="actions" key="tools">
        {children}
      </div>
    </header>
  );
}

/** The text of a view that has nothing to show. */
export function Empty({
  icon,
  title,
  children,
}: {
  readonly icon: IconName;
  readonly title: string;
  readonly children?: Child;
}) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      <div class="about">{children}</div>
    </div>
  );
}

/** Draws data that was requested from the hub or, if it is not there, says why. */
export function Ready<T>({
  of,
  what,
  icon,
  draw,
}: {
  readonly of: Loaded<T>;
  /** The data in words, as the end of "This hub does not have …". */
  readonly what: string;
  readonly icon: IconName;
  readonly draw: (value: T) => Child;
}) {
  switch (of.kind) {
    case "loading":
      return (
        <div class="empty" key="loading" aria-busy="true">
          <p class="about">Reading…</p>
        </div>
      );
    case "absent":
      return (
        <Empty key="absent" icon={icon} title={`This hub does not have ${what}`}>
          Its version of toolmux is older than this page, or does not offer it. Update toolmux and
          restart the hub.
        </Empty>
      );
    case "failed":
      return (
        <Empty key="failed" icon={icon} title={`The hub did not give ${what}`}>
          {of.message}
        </Empty>
      );
    case "ready":
      return <div key="ready">{draw(of.value)}</div>;
  }
}

export interface MenuItem {
  readonly text: string;
  readonly onSelect: () => void;
  readonly isDanger?: boolean;
}

export function Menu({
  label,
  items,
}: {
  readonly label: string;
  readonly items: readonly MenuItem[];
}) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (isOpen) root.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
  }, [isOpen]);
  const close = (): void => {
    setOpen(false);
    root.current?.querySelector("button")?.focus();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const all = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = all.findIndex((item) => item === document.activeElement);
    const moves: Readonly<Record<string, number>> = {
      ArrowDown: at + 1,
      ArrowUp: at < 1 ? all.length - 1 : at - 1,
      Home: 0,
      End: all.length - 1,
    };
    const to = moves[event.key];
    if (event.key === "Escape" && isOpen) {
      event.stopPropagation();
      close();
    } else if (isOpen && to !== undefined) {
      event.preventDefault();
      all[to % all.length]?.focus();
    }
  };
  const onFocusOut = ({ relatedTarget }: FocusEvent): void => {
    if (!(relatedTarget instanceof Node && root.current?.contains(relatedTarget) === true))
      setOpen(false);
  };
  return (
    <div class="menu" ref={root} onKeyDown={onKeyDown} onFocusOut={onFocusOut}>
      <button
        type="button"
        class="icon-button"
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={isOpen ? "true" : "false"}
        onClick={() => setOpen(!isOpen)}
      >
        <Icon name="more" />
      </button>
      {isOpen && (
        <ul role="menu" key="menu" aria-label={label}>
          {items.map(({ text, onSelect, isDanger }) => (
            <li role="none" key={text}>
              <button
                type="button"
                role="menuitem"
                tabindex={-1}
                class={isDanger === true ? "danger" : ""}
                onClick={() => {
                  close();
                  onSelect();
                }}
              >
                {text}
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/**
 * The attributes of a dialog that is over the page from its first drawing on, and takes the focus until it is removed.
 * @param onClose called when a person leaves it by Escape or by a click beside it
 */
export function useModal(onClose: () => void) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const { current } = dialog;
    const opener = document.activeElement;
    if (current?.open === false) current.showModal();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  const onClick = (event: MouseEvent): void => {
    if (event.target === dialog.current) onClose();
  };
  const onCancel = (event: Event): void => {
    event.preventDefault();
    onClose();
  };
  return { ref: dialog, onClick, onCancel };
}

/** A panel over the page, which takes the focus until it is closed. */
export function Drawer({
  title,
  onClose,
  children,
}: {
  readonly title: string;
  readonly onClose: () => void;
  readonly children?: Child;
}) {
  const modal = useModal(onClose);
  return (
    <dialog {...modal} class="drawer" aria-label={title}>
      <div class="drawer-body">
        <header class="view-head">
          <h2 tabindex={-1} autofocus>
            {title}
          </h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** What the scan has found. The texts are those of a server. */
export function FindingList({
  findings,
}: {
  readonly findings: ServerFindingsDocument["findings"];
}) {
  return (
    <ul class="plain">
      {findings.map(({ kind, name, check, hard, where, excerpt }) => (
        <li key={[kind, name, check, where].join(" ")}>
          <span class={hard ? "bad" : "about"}>{`${check} (${hard ? "hard" : "soft"})`}</span>{" "}
          <span class="mono">{kind === "instructions" ? kind : `${kind} ${name}, ${where}`}</span>{" "}
          <span class="about break">{excerpt}</span>
        </li>
      ))}
    </ul>
  );
}

/** Facts as pairs of name and value; those that are undefined are left out. */
export function Facts({ of }: { readonly of: Readonly<Record<string, Child | undefined>> }) {
  return (
    <dl class="facts">
      {Object.entries(of)
        .filter(([, value]) => value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

interface Range {
  readonly from: number;
  readonly to: number;
}

/** Number of rows above and below the visible part that are drawn, too. */
const MARGIN = 8;

/**
 * The rows of a list that are in sight, or nearly so.
 * @param list the list; it is in an element with `data-scroll` that scrolls
 * @param height of a row, in CSS pixels
 */
export function useRowsInSight(
  list: { readonly current: HTMLElement | null },
  height: number,
): Range {
  const [range, setRange] = useState<Range>({ from: 0, to: 40 });
  const update = useRef<() => void>(() => {});
  update.current = () => {
    const { current } = list;
    const scroller = current?.closest("[data-scroll]");
    if (current === null || scroller === null || scroller === undefined) return;
    const top = scroller.getBoundingClientRect().top - current.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(top / height) - MARGIN);
    const to = Math.ceil((top + scroller.clientHeight) / height) + MARGIN;
    setRange((before) => (before.from === from && before.to === to ? before : { from, to }));
  };
  useEffect(() => {
    const scroller = list.current?.closest("[data-scroll]");
    if (!(scroller instanceof HTMLElement)) return undefined;
    const onScroll = (): void => update.current?.();
    let frame = 0;
    // In the next frame: what is drawn may add a scroll bar, which changes the size again.
    const observer = new ResizeObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(onScroll);
    });
    observer.observe(scroller);
    scroller.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame);
      scroller.removeEventListener("scroll", onScroll);
    };
  }, []);
  return range;
}

/** A long list of rows of one height, of which only the visible part is drawn. */
export function Rows<T>({
  items,
  height,
  label,
  keyOf,
  draw,
  class: className = "",
}: {
  readonly items: readonly T[];
  /** Height of a row, in CSS pixels. */
  readonly height: number;
  readonly label: string;
  readonly keyOf: (item: T) => Key;
  readonly draw: (item: T) => Child;
  readonly class?: string;
}) {
  const list = useRef<HTMLUListElement>(null);
  const range = useRowsInSight(list, height);
  const from = Math.min(range.from, Math.max(0, items.length - 1));
  const shown = items.slice(from, range.to);
  return (
    <ul
      ref={list}
      class={`rows ${className}`}
      aria-label={label}
      style={{ height: `${items.length * height}px` }}
    >
      {shown.map((item, at) => (
        <li
          key={keyOf(item)}
          aria-setsize={items.length}
          aria-posinset={from + at + 1}
          style={{ top: `${(from + at) * height}px`, height: `${height}px` }}
        >
          {draw(item)}
        </li>
      ))}
    </ul>
  );
}

export function SearchField({
  label,
  value,
  onInput,
}: {
  readonly label: string;
  readonly value: string;
  readonly onInput: (text: string) => void;
}) {
  return (
    <input
      type="search"
      class="search"
      aria-label={label}
      placeholder={label}
      value={value}
      spellcheck={false}
      onInput={({ target }) => onInput((target as HTMLInputElement).value)}
    />
  );
}

export function Choice<T extends string>({
  label,
  value,
  options,
  onChoose,
}: {
  readonly label: string;
  readonly value: T;
  readonly options: readonly (readonly [value: T, text: string])[];
  readonly onChoose: (value: T) => void;
}) {
  return (
    <label class="choice">
      <span>{label}</span>
      <select
        value={value}
        onChange={({ target }) => onChoose((target as HTMLSelectElement).value as T)}
      >
        {options.map(([name, text]) => (
          <option key={name} value={name} selected={name === value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Button({
  text,
  onPress,
  kind = "",
  label,
  isDisabled = false,
}: {
  readonly text: string;
  readonly onPress: () => void;
  readonly kind?: "primary" | "danger" | "";
  /** The text for screen readers, if `text` does not say everything. */
  readonly label?: string;
  readonly isDisabled?: boolean;
}) {
  return (
    <button type="button" class={kind} aria-label={label} disabled={isDisabled} onClick={onPress}>
      {text}
    </button>
  );
}

/** Whether the page is narrow. */
export function useNarrow(): boolean {
  const query = matchMedia("(max-width: 720px)");
  const [isNarrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const onChange = (): void => setNarrow(query.matches);
    query.addEventListener("change", onChange);
    return () => query.removeEventListener("change", onChange);
  }, []);
  return isNarrow;
}

export async function copyText(text: string): Promise<void> {
  await navigator.clipboard.writeText(text);
}
