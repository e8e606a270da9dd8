"""How a report looks, by day and by night, on a screen and on paper."""

STYLE = """
:root { --text: #1d2433; --dim: #68718a; --line: #e3e6ee; --page: #f5f6fa; --card: #fff;
  --accent: #3b6fb6; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7ef; --dim: #98a1b8; --line: #333a4b;
  --page: #161a23; --card: #1e2430; --accent: #7aa5df; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1020px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 4px; }
h3 { font-size: 13px; font-weight: 600; color: var(--dim); margin: 14px 0 4px; }
p { margin: 0 0 10px; color: var(--dim); }
p b { color: var(--text); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px; margin-top: 18px; break-inside: avoid; }
.cards { display: grid; grid-template-columns: repeat(4, 1fr); gap: 12px; padding: 0;
  background: none; border: 0; }
.cards div { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; }
.cards b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.cards span { color: var(--dim); font-size: 13px; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  fill: var(--dim); }
svg g:hover { opacity: .75; }
.grid { stroke: var(--line); }
.axis { stroke: var(--dim); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 0; margin: 0;
  font-size: 13px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 6px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 10px; font-size: 14px; }
th, td { text-align: left; padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; font-size: 13px; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { display: block; height: 10px; min-width: 1px; border-radius: 2px;
  background: var(--accent); }
td:has(.bar) { width: 30%; }
@media (max-width: 640px) { .cards { grid-template-columns: repeat(2, 1fr); } }
@media print { body { background: #fff; } section { border: 0; padding: 8px 0; } }
"""
