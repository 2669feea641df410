-- Makes a page of the web site of a document, as a filter of pandoc. Needs the metadata source
-- (the path of the document).

local repository = "https://github.com/coredns-safebrowsing/safebrowsing/blob/HEAD/"
local source

-- page_of returns the page that deploy/site/build makes of a document, or nil.
local function page_of(path)
  if path == "README.md" then return "index.html" end
  local name = path:match("^docs/([%w-]+)%.md$") or path:match("^(%u+)%.md$") or path:match("^deploy/site/try/(try)%.md$")
  return name and name:lower() .. ".html"
end

-- resolve returns the path in the repository of a link in the source.
local function resolve(target)
  local path = (source:match("^(.*/)") or "") .. target
  repeat
    local n
    path, n = path:gsub("[^/]+/%.%./", "", 1)
  until n == 0
  return path
end

-- A link to a document leads to its page, and one to another file to the repository.
local function link(l)
  if l.target:match("^%a+:") or l.target:match("^#") then return nil end
  local target, anchor = l.target:match("^([^#]*)(.*)$")
  local path = resolve(target)
  l.target = (page_of(path) or repository .. path) .. anchor
  return l
end

local function image(i)
  i.src = resolve(i.src):gsub("^docs/", "")
  return i
end

-- What may be wider than the window scrolls, and a keyboard must reach it (WCAG 2.1.1).
local function code(c)
  c.attributes.tabindex = "0"
  return c
end

local function scroll(t)
  return pandoc.Div({ t }, pandoc.Attr("", { "table" }, { { "tabindex", "0" }, { "role", "group" }, { "aria-label", "table" } }))
end

return {
  { Meta = function(m) source = pandoc.utils.stringify(m.source) end },
  { Link = link, Image = image, CodeBlock = code, Table = scroll },
}
