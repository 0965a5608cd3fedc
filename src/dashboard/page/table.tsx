import { type Child, useEffect, useRef, useState } from "hono/jsx/dom";
import { type Key, useRowsInSight } from "./parts.tsx";

/** A column of a table. */
export interface Column<T> {
  /** The header. An empty one is a column of buttons, which has no order. */
  readonly name: string;
  /** The width, as a track of `grid-template-columns`. */
  readonly width: string;
  readonly draw: (item: T) => Child;
  /** What the rows are sorted by; absent: the column cannot be sorted by. Rows without a value are last. */
  readonly sortBy?: (item: T) => string | number | undefined;
  /** Whether the cells are numbers, which end at the right. The first click sorts the largest first. */
  readonly isNumber?: boolean;
  /** Width of the table in CSS pixels from which the column is shown; default: always. */
  readonly from?: number;
}

/** An order of rows: the name of the column, and whether the largest value is first. */
export interface SortOrder {
  readonly column: string;
  readonly isDescending: boolean;
}

/** The items in the order of a column. Items with the same value stay in the order that they have. */
export function sortItems<T>(
  items: readonly T[],
  columns: readonly Column<T>[],
  order: SortOrder | undefined,
): readonly T[] {
  const sortBy = columns.find(({ name }) => name === order?.column)?.sortBy;
  if (order === undefined || sortBy === undefined) return items;
  const sign = order.isDescending ? -1 : 1;
  return items.toSorted((one, other) => {
    const [a, b] = [sortBy(one), sortBy(other)];
    if (a === undefined || b === undefined)
      return Number(a === undefined) - Number(b === undefined);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
  });
}

/** The order after a click on a header: the column's own direction, the other one, then the order of the items. */
function nextOrder(
  { name, isNumber = false }: Pick<Column<never>, "name" | "isNumber">,
  order: SortOrder | undefined,
): SortOrder | undefined {
  if (order?.column !== name) return { column: name, isDescending: isNumber };
  return order.isDescending === isNumber ? { column: name, isDescending: !isNumber } : undefined;
}

/**
 * A table with headers that sort it. Its rows have one height, and only those in sight are drawn. A row is a link if
 * one of its cells has a link of the class `row-link`, which covers the row.
 */
export function DataTable<T>({
  items,
  columns,
  label,
  height,
  keyOf,
  rowOf,
}: {
  readonly items: readonly T[];
  readonly columns: readonly Column<T>[];
  readonly label: string;
  /** Height of a row, in CSS pixels. */
  readonly height: number;
  readonly keyOf: (item: T) => Key;
  /** Attributes of a row, such as `data-server`. */
  readonly rowOf?: (item: T) => Readonly<Record<`data-${string}`, string>>;
}) {
  const body = useRef<HTMLDivElement>(null);
  const [order, setOrder] = useState<SortOrder | undefined>(undefined);
  const width = useWidth(body);
  const range = useRowsInSight(body, height);
  const shown = columns.filter(({ from = 0 }) => from <= width);
  const sorted = sortItems(items, columns, order);
  const from = Math.min(range.from, Math.max(0, sorted.length - 1));
  const tracks = { gridTemplateColumns: shown.map((column) => column.width).join(" ") };
  return (
    <div
      class="card"
      role="table"
      aria-label={label}
      aria-rowcount={sorted.length + 1}
      aria-colcount={shown.length}
    >
      <div role="rowgroup">
        <div class="table-head table-row" role="row" aria-rowindex={1} style={tracks}>
          {shown.map((column) => (
            <TableHeader
              key={column.name}
              column={column}
              order={order}
              onSort={() => setOrder(nextOrder(column, order))}
            />
          ))}
        </div>
      </div>
      <div
        ref={body}
        class="table-body"
        role="rowgroup"
        style={{ height: `${sorted.length * height}px` }}
      >
        {sorted.slice(from, range.to).map((item, at) => (
          <div
            key={keyOf(item)}
            class="table-row"
            role="row"
            aria-rowindex={from + at + 2}
            {...rowOf?.(item)}
            style={{ ...tracks, top: `${(from + at) * height}px`, height: `${height}px` }}
          >
            {shown.map((column) => (
              <div
                key={column.name}
                role="cell"
                class={column.isNumber === true ? "cell number" : "cell"}
              >
                {column.draw(item)}
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}

function TableHeader<T>({
  column,
  order,
  onSort,
}: {
  readonly column: Column<T>;
  readonly order: SortOrder | undefined;
  readonly onSort: () => void;
}) {
  const { name, isNumber, sortBy } = column;
  const isChosen = order?.column === name;
  const direction = isChosen ? (order.isDescending ? "descending" : "ascending") : "none";
  return (
    <div
      role="columnheader"
      class={isNumber === true ? "cell number" : "cell"}
      aria-sort={sortBy === undefined ? undefined : direction}
    >
      {sortBy === undefined ? (
        <span key="text" class={name === "Actions" ? "unseen" : ""}>
          {name}
        </span>
      ) : (
        <button key="sort" type="button" class="sort" onClick={onSort}>
          {name}
          <span class="arrow" aria-hidden="true">
            {isChosen ? (order.isDescending ? "↓" : "↑") : ""}
          </span>
        </button>
      )}
    </div>
  );
}

/** The width of an element, in CSS pixels; of the page until the element is drawn. */
function useWidth(element: { readonly current: HTMLElement | null }): number {
  const [width, setWidth] = useState(innerWidth);
  useEffect(() => {
    const { current } = element;
    if (current === null) return undefined;
    const update = (): void => setWidth(current.clientWidth);
    update();
    let frame = 0;
    // In the next frame: a width that changes what is drawn may change itself, by a scroll bar.
    const observer = new ResizeObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(update);
    });
    observer.observe(current);
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, []);
  return width;
}

/** Number of characters at the end of a long text that stay, if the text has no part or word that ends it. */
const TAIL = 16;
const MAX_TAIL = 40;

/** Divides a path, URL or command into its beginning, which may be cut, and its end, which tells it from others. */
export function splitForCut(text: string): readonly [head: string, tail: string] {
  if (text.length <= TAIL) return ["", text];
  const slash = Math.max(text.lastIndexOf("/", text.length - 2), text.lastIndexOf("\\"));
  const at = slash > 0 ? slash : text.lastIndexOf(" ");
  const start = at > 0 && text.length - at <= MAX_TAIL ? at : text.length - TAIL;
  return [text.slice(0, start), text.slice(start)];
}

/** A path, URL or command that is cut in its middle if there is too little space: its end is what differs. */
export function MiddleCut({
  text,
  class: className = "",
}: {
  readonly text: string;
  readonly class?: string;
}) {
  const [head, tail] = splitForCut(text);
  return (
    <span class={`middle mono ${className}`} title={text}>
      <span class="clip">{head}</span>
      <span class="tail">{tail}</span>
    </span>
  );
}
