/** Icons drawn on a 16-pixel grid, one stroke; they are decoration and hidden from screen readers. */
const PATHS = {
  home: "M2.5 7 8 2.5 13.5 7v6.5h-4V10h-3v3.5h-4z",
  usage: "M2.5 13.5v-5M6.2 13.5v-8M9.8 13.5V8M13.5 13.5v-11",
  key: "M9.5 6.5a3.2 3.2 0 1 0-3 3.2L8 8.2h1.5V10H11v1.5h2.5V9.3L9.4 5.9M5.6 5.6h.01",
  members:
    "M6 7.5a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6M1.8 13.2c.3-2.4 2-3.7 4.2-3.7s3.9 1.3 4.2 3.700M10.5 7.300a2 2 0 1 0-.6-3.900M12 9.700c1.3.5 2 1.6 2.2 3.2",
  robot: "M3 6.500h10v6.500H3zM8 3v3.500M6 9.500h.01M10 9.500h.01M8 3h.01",
  limits: "M2.5 11.500a5.5 5.5 0 1 1 11 0M8 11.500l3-3.5",
  invoice: "M4 2.500h8v11l-2-1.3-2 1.3-2-1.3-2 1.300zM6 5.500h4M6 8h4",
  price: "M8.5 2.500h5v5l-6 6-5-5zM11 5h.01",
  webhook:
    "M6.2 6.8 4 10.600M9 5a2.3 2.3 0 1 0-3.4 2M8.3 4.800l2.3 4M10 12a2.3 2.3 0 1 0 .8-3.300M9.5 11.500h-3.400M6 11a2.3 2.3 0 1 1-2.5-1.5",
  audit: "M3.5 2.500h9v11h-9zM6 5.500h4M6 8h4M6 10.500h2",
  request: "M2.5 5h8.500M8.5 2.5 11 5 8.5 7.500M13.5 11H5M7.5 8.5 5 11l2.5 2.5",
  project: "M2.5 4h4l1.5 1.500h5.500v7h-11z",
  organization: "M3 13.500v-11h6v11M9 6.500h4v7M5 5h2M5 7.500h2M5 10h2M2 13.500h12",
  chat: "M2.5 3h11v8H7l-3 2.500V11H2.500z",
  editor: "M5.5 5 2.5 8l3 3M10.5 5l3 3-3 3M9 3.500l-2 9",
  fleet: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
  slo: "M2 9.500h2.800L6.5 4l3 8.5 1.7-4H14",
  release: "M8 2.500c2.5 1.5 3 4 3 6.500l1.5 2H3.500L5 9c0-2.5.5-5 3-6.500M6.5 13.500h3",
  evals: "M6.5 2.500h3M7 2.500v4l-3.5 7h9L9 6.500v-4M5 10.500h6",
  review:
    "M1.8 8S4 3.8 8 3.8 14.2 8 14.2 8 12 12.2 8 12.2 1.8 8 1.8 8M8 9.800a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6",
  scale: "M8 2.500v11M5 13.500h6M3 5h10M3 5 1.5 9h3zM13 5l-1.5 4h3z",
  diagnosis: "M7 11.500a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9M10.3 10.300l3.2 3.2",
  cascade: "M2.5 3.500h4v4h4v4h3M11.5 9.500l2 2-2 2",
  change: "m2.5 11.500 3.500-3.500 2.500 2.500 5-6M10 4.500h3.500V8",
  prefix: "M3 3v10M3 4.500h6M3 8h10M3 11.500h4",
  account: "M8 8a2.7 2.7 0 1 0 0-5.400A2.7 2.7 0 0 0 8 8M2.8 13.500c.4-2.7 2.5-4 5.2-4s4.8 1.3 5.2 4",
  chevron: "m5 6.5 3 3 3-3",
  updown: "m5 6 3-3 3 3M5 10l3 3 3-3",
  menu: "M2.5 4.500h11M2.5 8h11M2.5 11.500h11",
  close: "m4 4 8 8M12 4l-8 8",
  plus: "M8 3v10M3 8h10",
  copy: "M5.5 5.500h8v8h-8zM10.5 5.500v-3h-8v8h3",
  check: "m3 8.5 3.5 3.500L13 4.5",
  download: "M8 2.500v8M4.5 7.5 8 11l3.5-3.500M2.5 13.500h11",
  adapter: "M2.5 6.500h7v7h-7zM6.5 4.500v-2h7v7h-2",
  settings:
    "M2.5 4.500h6M12 4.500h1.500M2.5 11.500h1.500M7.5 11.500h6M8.5 4.500a1.7 1.7 0 1 0 3.4 0 1.7 1.7 0 0 0-3.4 0M4 11.500a1.7 1.7 0 1 0 3.4 0 1.7 1.7 0 0 0-3.4 0",
  dots: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  sun: "M8 10.800a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.600M8 1.500v1.300M8 13.200v1.300M1.5 8h1.300M13.2 8h1.300M3.4 3.400l.9.9M11.7 11.700l.9.9M12.6 3.400l-.9.9M4.3 11.700l-.9.9",
  moon: "M13.5 9.500A5.8 5.8 0 0 1 6.5 2.500a5.8 5.8 0 1 0 7 7z",
  play: "M4.5 3v10l8-5z",
  stop: "M4 4h8v8H4z",
  warning: "M8 2.5 14.5 13.500h-13zM8 6.500v3.500M8 12h.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      viewBox="0 0 16 16"
      width="16"
      height="16"
      fill="none"
      stroke="currentColor"
      strokeWidth={name === "dots" ? 2 : 1.3}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The product's mark: three currents. */
export function Mark() {
  return (
    <svg
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth="2.4"
      strokeLinecap="round"
      aria-hidden="true"
    >
      <path d="M3 7c4-3.5 7 3 11 .5 2-1.2 4-2.5 7-1" />
      <path d="M3 13c4-3.5 7 3 11 .5 2-1.2 4-2.5 7-1" opacity=".7" />
      <path d="M3 19c4-3.5 7 3 11 .5 2-1.2 4-2.5 7-1" opacity=".4" />
    </svg>
  );
}
