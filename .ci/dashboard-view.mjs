// The page that .ci/dashboard draws: Grafana's own components at the places of the panels.
import '@fontsource/inter/latin-400.css'
import '@fontsource/inter/latin-500.css'
import 'uplot/dist/uPlot.min.css'
import { FieldType, createTheme, dateTime, getDisplayProcessor, getFieldDisplayValues, renderLegendFormat, toDataFrame } from '@grafana/data'
import { BigValue, GlobalStyles, PanelChrome, ThemeContext, TimeSeries } from '@grafana/ui'
import { createElement as h } from 'react'
import { createRoot } from 'react-dom/client'

const theme = createTheme({ colors: { mode: 'dark' } })
const column = 1280 / 24, row = 38, gap = 8 // of Grafana's grid, in pixels

// frames makes of each series what Grafana's data source makes of it.
function frames(panel, range) {
  return panel.answers.flatMap(({ target, step, result }) => result.map(series => {
    const values = new Map((series.values ?? [series.value]).map(([t, v]) => [Math.round(t), Number(v)]))
    const times = target.instant ? [...values.keys()] : Array.from({ length: range.seconds / step + 1 }, (_, i) => range.to - range.seconds + i * step)
    const name = target.legendFormat ? renderLegendFormat(target.legendFormat, series.metric) : JSON.stringify(series.metric)
    const frame = toDataFrame({
      fields: [
        { name: 'Time', type: FieldType.time, values: times.map(t => t * 1000) },
        { name, type: FieldType.number, labels: series.metric, values: times.map(t => values.get(t) ?? null), config: { ...panel.fieldConfig.defaults, displayNameFromDS: name } },
      ],
    })
    frame.fields[1].config.color ??= { mode: 'palette-classic' } // the default of Grafana's panels
    for (const field of frame.fields) field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' })
    return frame
  })).map(numbered)
}

// numbered gives each series a colour of its own.
function numbered(frame, seriesIndex) {
  frame.fields[1].state = { seriesIndex }
  return frame
}

function stat(panel, range) {
  const values = getFieldDisplayValues({
    data: frames(panel, range), fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions,
    replaceVariables: text => text, theme, timeZone: 'utc',
  })
  return (width, height) => h('div', { style: { display: 'flex', gap } }, values.map((v, i) => h(BigValue, {
    key: i, theme, height, width: (width - gap * (values.length - 1)) / values.length, count: values.length,
    value: v.display, colorMode: panel.options.colorMode, graphMode: panel.options.graphMode,
    textMode: panel.options.textMode ?? 'auto', justifyMode: 'auto',
  })))
}

function timeseries(panel, range) {
  const data = frames(panel, range)
  if (data.length === 0) return () => h('div', { style: { textAlign: 'center', paddingTop: 60, color: theme.colors.text.secondary } }, 'No data')
  const from = dateTime((range.to - range.seconds) * 1000), to = dateTime(range.to * 1000)
  return (width, height) => h(TimeSeries, {
    frames: data, width, height, timeZone: 'utc', structureRev: 1,
    timeRange: { from, to, raw: { from, to } }, legend: panel.options.legend, options: panel.options,
  })
}

function panelAt(panel, range) {
  const { x, y, w, h: rows } = panel.gridPos
  const width = w * column - gap, height = rows * row - gap
  const style = { position: 'absolute', left: x * column + gap / 2, top: y * row + 56, width, height }
  if (panel.type === 'row') return h('h2', { key: panel.id, style: { ...style, ...theme.typography.h6 } }, panel.title)
  return h('div', { key: panel.id, style }, h(PanelChrome, { title: panel.title, width, height, children: (panel.type === 'stat' ? stat : timeseries)(panel, range) }))
}

window.drawDashboard = async (title, description, panels, range) => {
  for (const weight of [400, 500]) await document.fonts.load(`${weight} 14px Inter`) // the components measure texts
  const bottom = Math.max(...panels.map(p => p.gridPos.y + p.gridPos.h)) * row + 60
  createRoot(document.getElementById('root')).render(h(ThemeContext.Provider, { value: theme },
    h(GlobalStyles),
    h('style', null, '* { box-sizing: border-box }'), // as Grafana's own style sheet
    h('div', { style: { position: 'relative', height: bottom, background: theme.colors.background.canvas } },
      h('h1', { title: description, style: { ...theme.typography.h4, padding: '16px 12px' } }, title),
      panels.map(p => panelAt(p, range)))))
}

// cutTitles returns the titles of panels that do not fit.
window.cutTitles = () => [...document.querySelectorAll('h6')].filter(e => e.scrollWidth > e.clientWidth).map(e => `the title ${e.textContent} is cut`)
