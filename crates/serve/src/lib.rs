//! The planner as a page of a local server: the page asks, one search at a time answers.
//!
//! No request reads or writes a file: models and clusters are presets, or the text of a `config.json` that the request itself
//! holds. A question is of at most [`LONGEST`] bytes, its search ends when its client goes, and while [`MOST_WAITING`] questions wait others are refused. Only requests to this machine by `localhost`
//! or by an address are served (`host.rs`), so that no page of elsewhere can ask under a name of its own.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod answers;
mod host;
mod planning;
mod words;

use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use answers::Answers;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use planning::{DrawingRequest, Round, answer, request_of};
use quadrille_cost::native::{Framework, Learned, NarrowFormat};
use quadrille_pages::planner_page;
use quadrille_plan::native::Cancel;
use quadrille_spec::{Cluster, FlopsConvention, Model};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use words::in_words;

/// Bytes of a question at most: a model's `config.json` has a few thousand.
pub const LONGEST: usize = 256 << 10;

/// Questions that wait for a search, at most.
pub const MOST_WAITING: usize = 16;

/// What requests share.
struct Searches {
    /// One search uses all cores.
    running: Arc<Semaphore>,
    /// One layout is drawn, by one core: nobody's search waits for a picture.
    drawing: Arc<Semaphore>,
    /// Of the search and of the questions that wait.
    places: Arc<Semaphore>,
    /// What was found lately.
    answers: Arc<Answers>,
    /// What they have learned.
    learned: Learned,
}

/// Answers requests until the process ends.
///
/// # Errors
/// A listener that cannot be used.
pub fn serve(listener: TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let bound = listener.local_addr()?.ip();
        axum::serve(listener, router(bound)).await
    })
}

fn router(bound: IpAddr) -> Router {
    Router::new()
        .route("/", get(planner))
        .route("/plan", post(plan))
        .route("/layout", post(layout))
        .method_not_allowed_fallback(other_method)
        .fallback(nowhere)
        .layer(from_fn_with_state(bound, host::check))
        .layer(map_response(careful))
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(Arc::new(Searches::new()))
}

/// The page, with the names that it offers.
async fn planner() -> Html<String> {
    let choices = PlannerChoices {
        titles: words::titles(),
        models: Model::preset_names().collect(),
        clusters: Cluster::preset_names().filter(is_priced).collect(),
        frameworks: Framework::ALL.map(|framework| framework.name).to_vec(),
        products: NarrowFormat::ALL.map(|(name, _)| name).to_vec(),
        flops_conventions: FlopsConvention::ALL.map(|(name, _)| name).to_vec(),
    };
    Html(planner_page(&serde_json::to_value(choices).unwrap_or_default()))
}

/// Names that the page offers.
#[derive(Serialize)]
struct PlannerChoices {
    titles: Value,
    models: Vec<&'static str>,
    clusters: Vec<&'static str>,
    frameworks: Vec<&'static str>,
    products: Vec<&'static str>,
    flops_conventions: Vec<&'static str>,
}

/// A refused request.
#[derive(Serialize)]
struct RefusedRequest<'a> {
    error: &'a str,
}

/// Whether a cluster has devices that are described: `local` has what a calibration finds.
fn is_priced(name: &&str) -> bool {
    Cluster::preset(name).is_ok_and(|cluster| cluster.device.is_some())
}

/// The answer to a planning request, in a round or whole, as `report` has it for pages.
async fn plan(
    State(searches): State<Arc<Searches>>,
    round: Result<Query<Round>, QueryRejection>,
    body: Result<Json<Value>, JsonRejection>,
) -> Response {
    let round = match round {
        Ok(Query(round)) => round,
        Err(rejection) => return refusal(rejection.status(), &rejection.body_text()),
    };
    // As JSON by its content type, which other sites' pages cannot send without this server's permission.
    let request = match body.map(|Json(body)| request_of(&body.to_string())) {
        Ok(Ok(request)) => request,
        Ok(Err(reason)) => return refusal(StatusCode::UNPROCESSABLE_ENTITY, &in_words(&reason)),
        Err(rejection) => return unread(rejection.status(), &rejection.body_text()),
    };
    // Repeated requests, as of a slider that is moved back, are answered at once.
    if let Some(known) = searches.answers.of(&request) {
        return told(StatusCode::OK, known);
    }
    let answers = Arc::clone(&searches.answers);
    let learned = searches.learned.clone();
    let search = move |cancel: Cancel| {
        let document = answer(&request, round, &cancel, &learned)?;
        Ok(answers.keep(&request, &document))
    };
    searches.run(&searches.running, search).await
}

/// What is drawn of a layout of an answer.
async fn layout(
    State(searches): State<Arc<Searches>>,
    chosen: Result<Json<DrawingRequest>, JsonRejection>,
) -> Response {
    match chosen {
        Ok(Json(chosen)) => searches.run(&searches.drawing, move |cancel| Ok(chosen.drawn(&cancel)?.to_string())).await,
        Err(rejection) => unread(rejection.status(), &rejection.body_text()),
    }
}

/// The answer where nothing is.
async fn nowhere() -> Response {
    refusal(StatusCode::NOT_FOUND, "there is nothing here: the page is at /, and questions go to /plan and /layout")
}

/// The answer to what is asked in another way than it is answered.
async fn other_method() -> Response {
    let reason = "the page at / is read by GET, and questions to /plan and /layout are asked by POST";
    refusal(StatusCode::METHOD_NOT_ALLOWED, reason)
}

/// A question that is none.
fn unread(status: StatusCode, text: &str) -> Response {
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        let reason = format!("the request has more than {LONGEST} bytes: paste the text of a config.json alone");
        return refusal(status, &reason);
    }
    refusal(status, text)
}

impl Searches {
    fn new() -> Self {
        Self {
            running: Arc::new(Semaphore::new(1)),
            drawing: Arc::new(Semaphore::new(1)),
            places: Arc::new(Semaphore::new(1 + MOST_WAITING)),
            answers: Arc::default(),
            learned: Learned::default(),
        }
    }

    /// Runs a search, or draws, when those before it of that kind have ended; it is cancelled where the client goes, which ends this
    /// function early.
    async fn run(
        &self,
        running: &Arc<Semaphore>,
        search: impl FnOnce(Cancel) -> Result<String, String> + Send + 'static,
    ) -> Response {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many questions wait already; ask again");
        };
        let Ok(running) = running.clone().acquire_owned().await else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "the server ends");
        };
        let cancel = Cancel::default();
        let _wanted = Wanted(cancel.clone());
        let allowed = move || {
            let _allowed = (place, running);
            search(cancel)
        };
        match tokio::task::spawn_blocking(allowed).await {
            Ok(Ok(document)) => told(StatusCode::OK, document),
            Ok(Err(reason)) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &in_words(&reason)),
            Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the search failed, which is a fault of this program"),
        }
    }
}

/// Cancels a search when nobody waits for it any more.
struct Wanted(Cancel);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn refusal(status: StatusCode, reason: &str) -> Response {
    told(status, serde_json::to_string(&RefusedRequest { error: reason }).unwrap_or_default())
}

/// A document of JSON.
fn told(status: StatusCode, document: String) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], document).into_response()
}

/// Nothing is kept, taken for something else, or shown within other pages.
async fn careful(mut response: Response) -> Response {
    let headers = [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "frame-ancestors 'none'"),
    ];
    response.headers_mut().extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn searches_never_run_side_by_side() {
        let searches = Arc::new(Searches::new());
        let running = Arc::<AtomicUsize>::default();
        let most = Arc::default();
        let search = |_| {
            let searches = Arc::clone(&searches);
            let running = Arc::clone(&running);
            let most = Arc::clone(&most);
            async move {
                let search = move |_| {
                    let most: &AtomicUsize = &most;
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(10));
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok(String::new())
                };
                searches.run(&searches.running, search).await.status()
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let asked: Vec<_> = (0..8).map(|number| runtime.spawn(search(number))).collect();
        for answer in asked {
            assert_eq!(runtime.block_on(answer).unwrap(), StatusCode::OK);
        }
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_search_waits_for_no_picture() {
        let searches = Arc::new(Searches::new());
        let (end, has_end) = mpsc::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let drawing = Arc::clone(&searches);
        let drawn = runtime.spawn(async move {
            let draw =
                move |_| Ok(has_end.recv_timeout(Duration::from_secs(60)).map_or("late", |()| "drawn").to_owned());
            drawing.run(&drawing.drawing, draw).await.status()
        });
        runtime.block_on(tokio::task::yield_now());
        let searched = runtime.block_on(searches.run(&searches.running, |_| Ok(String::new())));
        assert_eq!(searched.status(), StatusCode::OK);
        assert!(!drawn.is_finished(), "it is drawn on");
        end.send(()).unwrap();
        assert_eq!(runtime.block_on(drawn).unwrap(), StatusCode::OK);
    }

    #[test]
    fn a_search_ends_when_nobody_waits_for_it() {
        let (begun, has_begun) = mpsc::channel();
        let (ended, has_ended) = mpsc::channel();
        let searches = Searches::new();
        let asked = async move {
            let search = move |cancel: Cancel| {
                begun.send(()).unwrap();
                while !cancel.is_cancelled() {
                    thread::sleep(Duration::from_millis(1));
                }
                ended.send(()).unwrap();
                Ok(String::new())
            };
            searches.run(&searches.running, search).await
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let asked = runtime.spawn(asked);
        runtime.block_on(tokio::task::yield_now());
        has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(has_ended.try_recv().is_err());
        asked.abort();
        assert!(runtime.block_on(asked).unwrap_err().is_cancelled());
        has_ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
