"""The words of the pages, in English and Chinese."""

from __future__ import annotations

from typing import Any

from flask import has_request_context, request

LANGUAGES = {"en": "English", "zh": "中文"}
COOKIE = "cube_language"

_WORDS: dict[str, tuple[str, str]] = {
    "runs": ("Runs", "运行"),
    "sign_in": ("Sign in", "登录"),
    "sign_out": ("Sign out", "退出"),
    "user_name": ("User name", "用户名"),
    "password": ("Password", "密码"),
    "sign_in_lead": (
        "Machine-learning work of every framework, on one platform.",
        "一个平台,运行所有框架的机器学习任务。",
    ),
    "first_password": (
        "First start? The password of admin was printed once, and is kept in the file admin-password in CUBE_HOME.",
        "首次启动?admin 的密码只打印一次,并保存在 CUBE_HOME 下的 admin-password 文件中。",
    ),
    "bad_credentials": ("The user name or the password is wrong.", "用户名或密码错误。"),
    "too_many": ("Too many attempts. Try again in {seconds} s.", "尝试次数过多,请在 {seconds} 秒后重试。"),
    "form_expired": ("This form has expired. Please try again.", "表单已过期,请重试。"),
    "users": ("Users", "用户"),
    "change_password": ("Change password", "修改密码"),
    "signed_in_as": ("Signed in as {name}", "已登录:{name}"),
    "run": ("Run", "运行"),
    "name": ("Name", "名称"),
    "project": ("Project", "项目"),
    "state": ("State", "状态"),
    "submitted": ("Submitted", "提交时间"),
    "duration": ("Duration", "时长"),
    "by": ("By", "提交者"),
    "all": ("All", "全部"),
    "none_yet": ("No runs yet", "还没有运行"),
    "none_yet_lead": (
        "Start one from a terminal. The sample pipeline trains three models on real handwritten digits:",
        "在终端中启动一个。示例流水线会用真实的手写数字训练三个模型:",
    ),
    "none_match": ("No runs in this state", "没有处于此状态的运行"),
    "show_all": ("Show all runs", "显示全部运行"),
    "older": ("Older runs", "更早的运行"),
    "newest": ("Newest runs", "最新的运行"),
    "loading": ("Loading …", "加载中…"),
    "back": ("All runs", "全部运行"),
    "cancel": ("Cancel run", "取消运行"),
    "cancel_sure": ("Cancel this run? Its running tasks are stopped.", "确定取消此运行?正在运行的任务会被停止。"),
    "cancelling": ("Cancelling …", "正在取消…"),
    "retry": ("Retry failed tasks", "重试失败任务"),
    "run_again": ("Run again", "再次运行"),
    "tasks": ("Tasks", "任务"),
    "task": ("Task", "任务"),
    "attempts": ("Attempts", "尝试次数"),
    "reason": ("Reason", "原因"),
    "log": ("Log", "日志"),
    "log_of": ("Log of {task}", "{task} 的日志"),
    "follow": ("Follow", "跟随"),
    "log_empty": ("Nothing written yet.", "暂无输出。"),
    "log_cut": (
        "… earlier output is not shown here; `cube logs` has all of it …",
        "…此处不显示更早的输出;使用 `cube logs` 查看全部…",
    ),
    "close": ("Close", "关闭"),
    "outputs": ("Outputs", "输出"),
    "artifacts": ("Artifacts", "产物"),
    "metrics": ("Metrics", "指标"),
    "value": ("Value", "值"),
    "params": ("Parameters", "参数"),
    "live": ("Live", "实时"),
    "offline": ("Reconnecting …", "正在重新连接…"),
    "error_title": ("That did not work", "操作失败"),
    "try_again": ("Try again", "重试"),
    "no_script": (
        "This page needs JavaScript. The `cube` command does not.",
        "此页面需要 JavaScript;`cube` 命令则不需要。",
    ),
    "to_runs": ("To the runs", "前往运行列表"),
    "roles": ("Roles", "角色"),
    "groups": ("Groups", "用户组"),
    "job": ("job", "作业"),
    "schedule": ("schedule", "定时"),
    "scheduled_for": ("scheduled for {time}", "计划时间:{time}"),
    "ranks": ("{count} ranks", "{count} 个进程"),
    "rank": ("rank {rank}", "进程 {rank}"),
    "rank_choice": ("Rank", "进程"),
    "pending": ("waiting", "等待中"),
    "show_more": ("Show all", "显示全部"),
    "show_less": ("Show less", "收起"),
    "all_metrics": ("{count} metrics", "{count} 个指标"),
    "all_outputs": ("{count} outputs", "{count} 个输出"),
    "steps": ("{count} points", "{count} 个点"),
    "days": ("d", "天"),
    "hours": ("h", "小时"),
    "minutes": ("min", "分"),
    "seconds": ("s", "秒"),
    "planned": ("planned", "已计划"),
    "armed": ("starting", "启动中"),
    "released": ("running", "运行中"),
    "finalizing": ("ending", "收尾中"),
    "lost": ("lost", "丢失"),
    "queued": ("queued", "排队中"),
    "running": ("running", "运行中"),
    "succeeded": ("succeeded", "成功"),
    "failed": ("failed", "失败"),
    "stopped": ("stopped", "已停止"),
    "blocked": ("waiting", "等待中"),
    "ready": ("ready", "就绪"),
    "admitted": ("starting", "启动中"),
    "active": ("running", "运行中"),
    "skipped": ("skipped", "已跳过"),
}

# Title and advice of an error's page, by its code or its status.
_ERRORS: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "run_not_found": (
        ("This run was not found", "未找到此运行"),
        (
            "It does not exist, or it belongs to a project that you are not in.",
            "它不存在,或属于您未加入的项目。",
        ),
    ),
    "csrf": (
        ("This form has expired", "表单已过期"),
        ("Go back, load the page again, and try once more.", "请返回并刷新页面,然后重试。"),
    ),
    "403": (
        ("You may not see or do this", "您没有权限"),
        (
            "Ask an administrator, or an owner of the project, for a role that allows it.",
            "请向管理员或项目所有者申请相应的角色。",
        ),
    ),
    "404": (
        ("There is no such page", "页面不存在"),
        ("The address may be mistyped, or what was here is gone.", "地址可能有误,或内容已被删除。"),
    ),
    "500": (
        ("Something went wrong in the platform", "平台出现错误"),
        (
            "Tell an administrator the number {incident}: the log has the cause.",
            "请将编号 {incident} 告知管理员:日志中有原因。",
        ),
    ),
    "503": (
        ("The platform does not answer just now", "平台暂时没有响应"),
        ("Try again in a moment.", "请稍后重试。"),
    ),
}

# The reasons that stand on the pages most, by their English text; the rest is shown as it is.
_REASONS: tuple[tuple[str, str], ...] = (
    (r"waits for task (\S+)", "等待任务 $1"),
    (r"waits to be (?:looked at|queued)", "等待调度"),
    (r"waits for other tasks of the run: at most (\d+) at once", "等待此运行的其他任务:最多同时运行 $1 个"),
    (r"is being started", "正在启动"),
    (r"is being stopped", "正在停止"),
    (r"has ended; its results are being stored", "已结束,正在保存结果"),
    (r"ended with exit code (\d+)", "以退出码 $1 结束"),
    (r"rank (\d+) \((\w+) (\d+)\) ended with exit code (\d+)", "进程 $1($2 $3)以退出码 $4 结束"),
    (r"was killed by signal (\d+)", "被信号 $1 终止"),
    (r"was killed because it used more memory than it asked for", "内存使用超过申请量,已被终止"),
    (r"was interrupted because the platform stopped", "因平台停止而中断"),
    (r"could not start: its environment could not be built", "无法启动:环境构建失败"),
    (r"its processes are gone and left no exit status", "进程已消失,未留下退出状态"),
    (r"stopped because the run was cancelled", "因运行被取消而停止"),
    (r"stopped because its timeout passed", "因超时而停止"),
    (r"the run's timeout passed", "运行已超时"),
    (r"Read the end of the log; the command itself reported an error", "请查看日志末尾:命令本身报告了错误"),
    (
        r"The process was killed from outside or crashed; read the end of the log",
        "进程被外部终止或已崩溃,请查看日志末尾",
    ),
    (
        r"Ask for more memory \(resources\.memory\), or use smaller batches",
        "请申请更多内存(resources.memory)或减小批次",
    ),
    (r"Raise the task's timeout, or make the work shorter", "请增大任务的超时时间,或缩短任务"),
    (
        r"The platform or the machine was stopped; the task is tried again by itself",
        "平台或机器曾停止,任务会自动重试",
    ),
)


def language() -> str:
    """What was chosen on the page, else the first of the browser's languages that we speak."""
    if not has_request_context():
        return "en"
    chosen = request.cookies.get(COOKIE)
    if chosen in LANGUAGES:
        return chosen
    return request.accept_languages.best_match(list(LANGUAGES), default="en") or "en"


def words(lang: str) -> dict[str, str]:
    index = 1 if lang == "zh" else 0
    return {key: both[index] for key, both in _WORDS.items()}


def reasons(lang: str) -> tuple[tuple[str, str], ...]:
    """(regular expression of the whole English text, what to show instead), in JavaScript's syntax."""
    return _REASONS if lang == "zh" else ()


def error_words(status: int, body: dict[str, Any]) -> tuple[str, str]:
    """Title and advice for a person who looks at a page."""
    index = 1 if language() == "zh" else 0
    found = _ERRORS.get(str(body["code"])) or _ERRORS.get(str(status))
    if found is None:
        return _WORDS["error_title"][index], str(body["message"])
    incident = (body["detail"] or {}).get("incident", "") if isinstance(body["detail"], dict | None) else ""
    return found[0][index], found[1][index].replace("{incident}", str(incident))
