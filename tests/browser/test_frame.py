"""What a sign-in weighs, a draft sent to review by keyboard alone, and pages on a phone."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.admin import Admin
from tests.browser.conftest import shoot, shoot_everywhere, without_violations

pytestmark = pytest.mark.browser
MOST_BYTES = 300_000
# Tab is pressed at most so many times on the way to something.
_MOST_TABS = 400


@pytest.fixture
def operator(browser: Browser, lived_in_admin: Admin, seen: dict[str, Any]) -> Iterator[Page]:
    """A page of an operator on a desk."""
    with browser.new_context(viewport={"width": 1280, "height": 900}, base_url=lived_in_admin.url) as context:
        context.add_cookies(
            [{"name": seen["cookie"], "value": seen["sessions"]["Operator"], "url": lived_in_admin.url}]
        )
        page = context.new_page()
        page.set_default_timeout(30_000)
        with without_violations(page):
            yield page


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until what is focused is what is wanted."""
    for _ in range(_MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"Tab doesn't come to {selector} on {page.url}")


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("seen")
def test_a_cold_sign_in_is_light(browser: Browser, lived_in_admin: Admin, seen: dict[str, Any]) -> None:
    with browser.new_context(base_url=lived_in_admin.url) as context:
        page = context.new_page()
        page.set_default_timeout(30_000)
        watch = context.new_cdp_session(page)
        received: list[float] = []
        watch.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
        watch.send("Network.enable")
        page.goto("/admin/")
        page.fill("#id_username", "signs-in")
        page.fill("#id_password", seen["password"])
        page.click("button[type=submit]")
        page.wait_for_url("**/admin/")
        page.wait_for_load_state("networkidle")
    assert 20_000 < sum(received) < MOST_BYTES, sorted(received)


def search_for(page: Page, text: str) -> None:
    """Type something into the search of all pages, from Home."""
    page.goto("/admin/")
    page.keyboard.press("Control+k")
    expect(page.locator("#search-input-command")).to_be_focused()
    page.keyboard.type(text)


@pytest.mark.timeout(600)
def test_keys_lead_to_pages_to_the_search_and_to_everything(operator: Page) -> None:
    page = operator
    page.goto("/admin/")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/scheduler/decision/")
    page.keyboard.press("/")
    expect(page.locator("#main input:focus")).to_have_count(1)
    page.goto("/admin/")
    page.keyboard.press("g")
    page.keyboard.press("Shift+G")
    page.wait_for_url("**/policies/gatesetting/")
    search_for(page, "web-1")
    found = page.locator("#command-results a", has_text="shop/web-1")
    expect(found).to_be_visible()
    shoot(page, "palette")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/pods/shop/web-1/"))


@pytest.mark.timeout(600)
def test_enter_opens_the_first_thing_that_was_found_for_what_is_typed(operator: Page) -> None:
    page = operator
    search_for(page, "doct")
    expect(page.locator("#command-results a", has_text="Doctor")).to_be_visible()
    page.keyboard.press("Control+a")
    page.keyboard.type("web-1")
    page.keyboard.press("Enter")  # of "doct" nothing is opened
    expect(page.locator("#command-results a", has_text="shop/web-1")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/scheduler/pods/shop/web-1/")


@pytest.mark.timeout(600)
def test_a_page_that_refreshes_itself_waits_until_the_search_is_closed(operator: Page) -> None:
    page = operator
    moves = [True]

    def moving(route: Route) -> None:
        """Answer with Home as it is while the cluster is built, and then as it is."""
        answer = route.fetch()
        head = '<meta name="berth-refresh" content="2"></head>' if moves else "</head>"
        route.fulfill(response=answer, body=answer.text().replace("</head>", head, 1))

    page.route("**/admin/", moving)
    search_for(page, "web-1")
    found = page.locator("#command-results a", has_text="shop/web-1")
    expect(found).to_be_visible()
    page.wait_for_timeout(5000)
    expect(found).to_be_visible()
    moves.clear()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("meta[name='berth-refresh']")).to_have_count(0, timeout=10_000)


@pytest.mark.timeout(600)
def test_what_finds_nothing_says_so_until_something_else_is_typed(operator: Page) -> None:
    page = operator
    search_for(page, "no-such-thing")
    nothing = page.locator("#command-results", has_text="Nothing found for “no-such-thing”")
    expect(nothing).to_be_visible()
    page.keyboard.press("Enter")  # opens nothing
    shoot(page, "palette-nothing")
    page.keyboard.press("Control+a")
    page.keyboard.type("web-1")
    expect(page.locator("#command-results a", has_text="shop/web-1")).to_be_visible()
    expect(nothing).to_be_hidden()


@pytest.mark.timeout(600)
def test_an_answer_about_what_was_typed_before_is_not_waited_for(operator: Page) -> None:
    page = operator
    page.goto("/admin/")
    page.route("**/admin/search/?*s=doct", lambda _: None)  # never answered
    page.keyboard.press("Control+k")
    expect(page.locator("#search-input-command")).to_be_focused()
    with page.expect_request("**/admin/search/?*s=doct"):
        page.keyboard.type("doct")
    page.keyboard.press("Control+a")
    page.keyboard.type("web-1")
    expect(page.locator("#command-results a", has_text="shop/web-1")).to_be_visible()
    with page.context.expect_page() as opened:
        page.keyboard.press("Control+Enter")
    opened.value.wait_for_url("**/scheduler/pods/shop/web-1/")


@pytest.mark.timeout(600)
def test_what_finds_keeps_the_keyboard_and_gives_it_back_when_it_closes(operator: Page) -> None:
    page = operator
    page.goto("/admin/")
    opener = page.locator("#main .berth-link").first
    opener.focus()
    page.keyboard.press("Control+k")
    field = page.locator("#search-input-command")
    expect(field).to_be_focused()
    page.keyboard.type("web-1")
    expect(page.locator("#command-results a", has_text="shop/web-1")).to_be_visible()
    for key in ("Tab", "Shift+Tab"):
        for _ in range(6):
            page.keyboard.press(key)
            assert page.evaluate("document.activeElement.closest('#palette') !== null"), key
    page.keyboard.press("Shift+Tab")
    expect(field).not_to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
    expect(opener).to_be_focused()


@pytest.mark.timeout(600)
def test_a_draft_is_written_and_sent_to_review_by_keyboard_alone(operator: Page) -> None:
    page = operator
    page.goto("/admin/")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/policies/ruleset/")
    tab_to(page, "#main a[href^='/admin/policies/ruleset/add/']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/policies/ruleset/add/**")
    expect(page.locator("#id_name")).to_be_visible()
    tab_to(page, "#id_name")
    page.keyboard.type("by-keys")
    tab_to(page, "button[name=_save]")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/rulesetversion/edit"))
    expect(page.locator("#scores-group .add-row")).to_be_visible()
    tab_to(page, "#scores-group .add-row")
    page.keyboard.press("Enter")
    expect(page.locator("#id_scores-0-builtin")).to_be_visible()
    tab_to(page, "#id_scores-0-builtin")
    page.keyboard.type("LeastReq")
    tab_to(page, "button[name=_save]")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/policies/change/\d+/"))
    tab_to(page, "#id_text")
    page.keyboard.type("no mouse at hand")
    tab_to(page, "button[name=act][value=submit]")
    page.keyboard.press("Enter")
    expect(page.locator("body")).to_contain_text("in review")
    shoot_everywhere(page, "sent-by-keys")


@pytest.mark.timeout(600)
def test_a_list_that_follows_says_that_its_reader_is_signed_out(operator: Page) -> None:
    page = operator
    page.goto("/admin/scheduler/decision/")
    page.click("#follow")
    expect(page.locator("#stop-following")).to_be_visible()
    page.context.clear_cookies()
    expect(page.locator("#signed-out")).to_contain_text("You are signed out")
    expect(page.locator("input[type=password]")).to_have_count(0)
    shoot(page, "signed-out-following")


@pytest.mark.timeout(600)
def test_who_types_rules_is_told_at_once_that_they_are_signed_out(operator: Page) -> None:
    page = operator
    page.goto("/admin/policies/rulesetversion/edit:web/change/")
    page.context.clear_cookies()
    page.fill("#id_filters-0-reason", "typed for a while")
    expect(page.locator("#faults-list")).to_contain_text("copy what you have typed")


@pytest.mark.timeout(600)
def test_what_stands_without_the_frame_is_dark_where_the_system_is(operator: Page, seen: dict[str, Any]) -> None:
    page = operator
    page.goto("/admin/policies/rulesetversion/edit:web/change/")
    page.context.clear_cookies(name=seen["cookie"])
    page.fill("#id_filters-0-reason", "typed for a while")
    page.click("button[name=_save]")
    expect(page.locator(".berth-alone")).to_contain_text("typed for a while")
    shown = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        shown[scheme] = page.evaluate(
            "[...document.querySelectorAll('.berth-alone, .berth-alone *')].map((each) => getComputedStyle(each).color)"
        )
        shoot(page, f"signed-out-typed-{scheme}")
    assert set(shown["light"]) == {"rgb(0, 0, 0)"}
    assert set(shown["dark"]) == {"rgb(255, 255, 255)"}


def names_in_order(page: Page) -> list[str | None]:
    """Return the Assignments as the page shows them."""
    return [row.get_attribute("data-name") for row in page.locator("#order tbody tr").all()]


@pytest.mark.timeout(600)
def test_moved_assignments_show_their_new_places_and_moved_back_they_are_as_live(operator: Page) -> None:
    page = operator
    page.goto("/admin/policies/assignment/order/")
    places, said = page.locator("#order td[data-label=Place]"), page.locator("#order-moved")
    began = names_in_order(page)
    page.click(f"button[aria-label='Move {began[0]} down']")
    assert names_in_order(page) != began
    assert places.all_text_contents() == ["1", "2", "3"]
    expect(said).to_have_text("This order differs from the live one. Save it with the button below.")
    page.click(f"button[aria-label='Move {began[0]} up']")
    assert names_in_order(page) == began
    assert places.all_text_contents() == ["1", "2", "3"]
    expect(said).to_have_text("This is the live order.")


@pytest.mark.timeout(600)
def test_assignments_are_put_in_order_by_dragging_and_by_keys(operator: Page) -> None:
    page = operator
    page.goto("/admin/policies/assignment/order/")
    assert names_in_order(page) == ["early", "middle", "all-web"]
    last, first = page.locator("tr[data-name=all-web]"), page.locator("tr[data-name=early]")
    last.drag_to(first, source_position={"x": 40, "y": 10}, target_position={"x": 40, "y": 2})
    assert names_in_order(page) == ["all-web", "early", "middle"]
    tab_to(page, "button[aria-label='Move middle up']")
    page.keyboard.press("Enter")
    assert names_in_order(page) == ["all-web", "middle", "early"]
    # The button goes along: pressed again, it moves it on.
    page.keyboard.press(" ")
    assert names_in_order(page) == ["middle", "all-web", "early"]
    expect(page.locator("#order-moved")).to_contain_text("This order differs from the live one")
    tab_to(page, "#order-reason")
    page.keyboard.type("the middle one decides first")
    tab_to(page, "button[name=save]")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/policies/change/\d+/"))
    # Only the number that has to changes.
    expect(page.locator("#content")).to_contain_text("Assignment early changed: order 10")
    expect(page.locator("#content")).to_contain_text("order 110")
    expect(page.locator("#content")).not_to_contain_text("Assignment middle")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", ["/admin/", "/admin/scheduler/decision/", "/admin/scheduler/pending/"])
def test_a_page_on_a_phone_is_as_wide_as_the_phone(operator: Page, path: str) -> None:
    operator.set_viewport_size({"width": 390, "height": 844})
    operator.goto(path)
    shoot(operator, f"phone{path.replace('/', '-')}")
    assert operator.evaluate("() => document.documentElement.scrollWidth") <= 390


@pytest.mark.timeout(600)
def test_enter_in_a_changes_time_sets_it_and_does_none_of_the_other_acts(operator: Page) -> None:
    page = operator
    page.goto("/admin/")
    page.locator("li", has_text="waits for a look").get_by_role("link", name="Change").click()
    page.wait_for_url(re.compile(r"/policies/change/\d+/"))
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.post_data or "") if request.method == "POST" else None)
    page.fill("#id_expires_at", "2036-01-01T09:00")
    page.press("#id_expires_at", "Enter")
    expect(page.locator("body")).to_contain_text("The Change expires at 2036-01-01 09:00")
    assert [re.findall(r"act=(\w+)", each) for each in sent] == [["expire"]]


@pytest.mark.timeout(600)
def test_enter_in_the_reason_for_an_order_keeps_the_order_and_moves_nothing(operator: Page) -> None:
    page = operator
    page.goto("/admin/policies/assignment/order/")
    before = names_in_order(page)
    tab_to(page, f"button[aria-label='Move {before[0]} down']")
    page.keyboard.press("Enter")
    tab_to(page, "#order-reason")
    page.keyboard.type("the general one comes last")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/policies/change/\d+/"))
    expect(page.locator("body")).to_contain_text("the general one comes last")


@pytest.mark.timeout(600)
def test_who_goes_back_to_a_form_sees_in_its_editor_what_its_field_holds(operator: Page) -> None:
    page = operator
    page.goto("/admin/policies/rulesetversion/edit:web/change/")
    editor = page.locator(".cm-content").first
    editor.click()
    page.keyboard.press("Control+End")
    page.keyboard.type(" || true")
    page.select_option("#id_filters-0-builtin", "PodFitsHost")
    expect(page.locator("#id_filters-0-reason")).to_be_hidden()
    page.goto("/admin/policies/audit/")
    page.go_back()
    expect(page.locator("#id_filters-0-expression")).to_have_value(re.compile(r"\|\| true$"))
    expect(page.locator("#id_filters-0-arguments")).to_be_visible()
    expect(page.locator("#id_filters-0-reason")).to_be_hidden()
    page.select_option("#id_filters-0-builtin", "")
    expect(editor).to_contain_text("|| true")


@pytest.mark.timeout(600)
def test_a_form_is_sent_once_by_a_double_click(operator: Page) -> None:
    page = operator
    page.goto("/admin/policies/pauses/pause/?target=everything")
    goes = """() => {
        const form = document.querySelector("#content form[method=post]"), goes = [];
        form.noValidate = true;
        window.addEventListener("submit", (event) => {
            goes.push(!event.defaultPrevented);
            event.preventDefault();
        });
        for (let click = 0; click < 2; click += 1) form.requestSubmit();
        return goes;
    }"""
    assert page.evaluate(goes) == [True, False]


# Whether what has the keyboard shows it, and lies under nothing else.
_SEEN = """() => {
    const has = document.activeElement, box = has.getBoundingClientRect(), looks = getComputedStyle(has);
    const there = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return [looks.outlineStyle !== "none", has.contains(there) || Boolean(there && there.contains(has))];
}"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "wanted", ["#id_filters-0-preemption_helps", "#filters-group a.add-row", "#victims-group a.add-row"]
)
def test_what_tab_comes_to_in_a_long_form_shows_it_and_is_not_under_the_bar_of_buttons(
    operator: Page, wanted: str
) -> None:
    page = operator
    page.goto("/admin/policies/rulesetversion/edit:web/change/")
    expect(page.locator(".cm-content").first).to_be_visible()
    tab_to(page, wanted)
    assert page.evaluate(_SEEN) == [True, True]


@pytest.mark.timeout(600)
def test_a_refused_form_has_the_keyboard_at_what_is_to_be_mended(operator: Page) -> None:
    page = operator
    page.goto("/admin/policies/assignment/add/")
    page.fill("#id_name", "gives-nothing")
    with page.expect_navigation():
        page.locator("#assignment_form").evaluate("form => { form.noValidate = true; form.requestSubmit(); }")
    expect(page.locator("#id_rule_set + .select2 [role='combobox']")).to_be_focused()
    page.goto("/admin/")
    page.locator("li", has_text="waits for a look").get_by_role("link", name="Change").click()
    with page.expect_navigation():
        page.get_by_role("button", name="Comment").click()
    expect(page.locator("#content [role='alert']")).to_be_focused()
